"""Trains DFlash drafters for BASTION: answers, features, train, evaluate, export (training/README.md)."""
