// Opening a model the whole way, in a child process: what a file does to us is seen from outside.
#pragma once

#include <string>
#include <vector>

#include "support.h"

namespace bastion::test {

struct Outcome {
    enum Kind { opened, refused, crashed } kind;
    std::string message;  ///< why it was refused, or how it died
};

/// Opens a target and, if `drafter` is not empty, a drafter for it, and runs one small pass of each. A signal, an
/// abort, a sanitizer report and a hang all count as crashed.
Outcome attempt(const std::string& target, const std::string& drafter = "");

/// Checks that the outcome is a refusal in one line that holds the file's path and `named`.
void expect_refused(const Outcome& outcome, const std::string& file, const std::string& named, const std::string& what);

/// A tiny target, or a tiny drafter with its target.
struct FilePair {
    const char* target;
    const char* drafter;  ///< empty: the target is what the test is about

    /// The file a test changes.
    std::string subject() const { return model_path(*drafter ? drafter : target); }
    /// Tries the pair with `changed` in place of the subject.
    Outcome with(const std::string& changed) const;
};

/// One of each kind: dense and expert targets, drafters with every optional part.
const std::vector<FilePair>& tiny_pairs();

}  // namespace bastion::test
