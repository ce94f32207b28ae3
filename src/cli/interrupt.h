// Ctrl-C and termination requests as a flag that loops look at.
#pragma once

namespace bastion::cli::interrupt {

/// Installs the handlers: SIGINT and SIGTERM set the flag, a second one ends the process with exit code 130 at once.
/// SIGPIPE is ignored, so that a closed stdout is an error of the write and not the death of the process.
void install();

/// True after a first signal, until `clear`.
bool requested();

/// True if one of the signals was a SIGTERM, which asks the whole program to end and not only what it is doing.
bool termination_requested();

/// Forgets a Ctrl-C that has been dealt with. A termination request stays.
void clear();

/// For commands without a partial result worth keeping: the first signal already ends the process.
void exit_on_first();

}  // namespace bastion::cli::interrupt
