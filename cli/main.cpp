// canopy: the program. One command a file; exit status 0 good, 1 a check failed, 2 bad input or usage.
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "command.hpp"

namespace {

using namespace canopy;

bool has_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands(nullptr))
    if (command->get_name() == name) return true;
  return false;
}

std::string command_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands(nullptr))
    names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

int run(int argc, char** argv) {
  CLI::App app{"Verifies draft trees through Gated DeltaNet layers in one unit-lower-triangular solve.", "canopy"};
  app.set_version_flag("--version", std::string("canopy ") + canopy_version());
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  int status = cli::kGood;
  cli::add_demo_command(app, status);
  cli::add_tree_command(app, status);
  cli::add_verify_command(app, status);
  cli::add_commit_command(app, status);
  cli::add_study_command(app, status);
  cli::add_bench_command(app, status);
  cli::add_tune_command(app, status);
  cli::add_explain_command(app, status);
  cli::add_env_command(app, status);
  if (argc > 1 && argv[1][0] != '-' && !has_command(app, argv[1]))
    return cli::fail(std::string("no command '") + argv[1] + "': expected one of " + command_names(app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? cli::kGood : cli::kBadInput;
  }
  return status;
}

// Whether whoever read standard output has closed the pipe.
bool reader_gone() {
  pollfd output{STDOUT_FILENO, 0, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that went away (canopy ... | head) shows as a failed write, not as a signal that ends the program.
  std::signal(SIGPIPE, SIG_IGN);
  int status;
  try {
    status = run(argc, argv);
  } catch (const std::bad_alloc&) {
    status = cli::fail("out of memory: the problem does not fit this machine; reduce --batch, --nodes or --heads");
  } catch (const std::exception& error) {
    if (reader_gone()) return cli::kBadInput;
    status = cli::fail(error.what());
  }
  std::cout.flush();
  const bool written = std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout.good();
  if (!written && !reader_gone()) return cli::fail("standard output: cannot write it all (is the disk full?)");
  return status;
}
