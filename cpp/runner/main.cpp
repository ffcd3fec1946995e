// etprof-runner: options to a session, the session to result files. The only place that exits.

#if defined(ETPROF_LOADED_LIBRARY)
#include <dlfcn.h>
#endif

#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "build_info.h"
#include "files.h"
#include "layout.h"
#include "messages.h"
#include "options.h"
#include "program_description.h"
#include "result_document.h"
#include "session.h"
#include "sme_mode/cpu_table.h"

namespace {

using namespace etprof;

void refuse_without_event_tracer([[maybe_unused]] const Options& options) {
#ifndef ET_EVENT_TRACER_ENABLED
    if (options.etdump_path) {
        throw RunnerError(ExitCode::kUsage,
                          "--etdump is given, but this runner has no event tracer",
                          "use the runner of the preset without -bare in its name");
    }
#endif
}

void refuse_unwritable(const Options& options) {
    for (const auto& path :
         {std::optional(options.result_path), options.etdump_path, options.kernel_trace_path}) {
        if (path) {
            require_writable(*path);
        }
    }
    if (options.outputs_dir) {
        require_writable(*options.outputs_dir, true);
    }
}

/// The trace that was asked for, or one that watches nothing.
std::unique_ptr<KernelTrace> make_trace(const Options& options) {
    if (!options.kernel_trace_path) {
        return std::make_unique<KernelTrace>();
    }
    std::unique_ptr<KernelTrace> trace = make_kernel_trace();
    if (trace == nullptr) {
        throw RunnerError(
            ExitCode::kUsage, "--kernel-trace is given, but this runner has no trace",
            "use etprof-runner-trace, or the runner of a trace build, such as preset host-trace");
    }
    return trace;
}

/// Writes everything under temporary names first, so that a failure leaves nothing behind.
void write_results(const Options& options, const ProgramDescription& program, const SmeReport& sme,
                   Session& session, KernelTrace& trace) {
    std::vector<std::vector<Output>> steps = session.outputs();
    ResultFiles files;
    if (options.outputs_dir) {
        files.add_folder(*options.outputs_dir);
        for (std::size_t step = 0; step < steps.size(); ++step) {
            const std::string end = step == 0 ? "" : "_step_" + std::to_string(step + 1);
            for (std::size_t i = 0; i < steps[step].size(); ++i) {
                Output& output = steps[step][i];
                output.path = *options.outputs_dir + "/output_" + std::to_string(i) + end + ".bin";
                files.add(*output.path, output.bytes.data(), output.bytes.size());
            }
        }
    }
    if (options.etdump_path) {
        const EtdumpBytes etdump = session.take_etdump();
        files.add(*options.etdump_path, etdump.data.get(), etdump.size_bytes);
    }
    if (options.kernel_trace_path) {
        files.add(*options.kernel_trace_path,
                  trace_document(options, program, session, sme, trace));
    }
    files.add(options.result_path, result_document(options, program, session, steps, sme));
    files.commit();
}

void run_program(const Options& options) {
    refuse_without_event_tracer(options);
    refuse_unwritable(options);
    const SmeReport sme = require_sme_mode(options.sme);
    const std::unique_ptr<KernelTrace> trace = make_trace(options);
    const ProgramDescription program = describe_program(options.model_path);
    if (options.data_path) {
        require_file(*options.data_path, "the data file", ExitCode::kModel);
    }
    Session session(options, program, *trace);
    session.load();
    session.run();
    write_results(options, program, sme, session, *trace);
    if (options.observer_lines) {
        print(observer_lines(options, session));
    }
}

#if defined(ETPROF_LOADED_LIBRARY)
/// Loads XNNPACK's library, which reads the table of CPU features at once.
void load_after_switch(int count, char** words) {
    apply_sme_mode(count, words);
    if (dlopen(ETPROF_LOADED_LIBRARY, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
        throw RunnerError(ExitCode::kInternal,
                          std::string("XNNPACK cannot be loaded: ") + dlerror(),
                          "install executorch of the version in --build-info beside this runner");
    }
}
#endif

void act(const Options& options) {
    switch (options.action) {
        case Action::kHelp:
            return print(help_text());
        case Action::kVersion:
            return print(std::string("etprof-runner ") + runner_version() + "\n");
        case Action::kBuildInfo:
            return print(build_document());
        case Action::kCpuInfo:
            return print(cpu_document());
        case Action::kDescribe:
            return print(describe_document(describe_program(options.model_path)));
        case Action::kRun:
            return run_program(options);
    }
}

struct Words {
    int count;
    char** values;
};

int run_words(void* argument) {
    const auto [count, values] = *static_cast<const Words*>(argument);
    try {
#if defined(ETPROF_LOADED_LIBRARY)
        load_after_switch(count, values);
#endif
        act(parse_options({values + 1, values + count}));
        return static_cast<int>(ExitCode::kOk);
    } catch (const RunnerError& error) {
        return report_failure(error.code(), error.what());
    } catch (const std::bad_alloc&) {
        return report_failure(ExitCode::kInternal,
                              "out of memory: run a smaller model, or fewer iterations");
    } catch (const std::exception& error) {
        return report_failure(ExitCode::kInternal,
                              (std::string("unexpected failure (") + error.what() +
                               "): please report it with the command line")
                                  .c_str());
    }
}

}  // namespace

int main(int argc, char** argv) {
    // A full quota or a closed pipe is an error to report, not a signal to die from.
    std::signal(SIGXFSZ, SIG_IGN);
    std::signal(SIGPIPE, SIG_IGN);
    install_crash_report();
    capture_runtime_log();
    Words words{argc, argv};
    return call_shifted(parse_layout_shift(std::getenv(kLayoutVariable)), run_words, &words);
}
