#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include "base/runner_error.h"
#include "check.h"
#include "files.h"
#include "scratch_folder.h"

namespace {

using namespace etprof;
using etprof::testing::read_file;
using etprof::testing::ScratchFolder;

/// Writes one file as a run does.
void write_and_commit(const std::string& path, const std::string& content) {
    ResultFiles files;
    files.add(path, content);
    files.commit();
}

TEST(result_files_appear_on_commit_together) {
    const ScratchFolder folder;
    ResultFiles files;
    files.add_folder(folder.path("o"));
    files.add(folder.path("o/0"), "output");
    files.add(folder.path("r.json"), "content");
    CHECK(!std::filesystem::exists(folder.path("r.json")));
    files.commit();
    CHECK_EQUAL("content", read_file(folder.path("r.json")));
    CHECK_EQUAL("output", read_file(folder.path("o/0")));
    CHECK_EQUAL(2U, folder.count());
}

TEST(result_files_leave_nothing_without_commit) {
    const ScratchFolder folder;
    {
        ResultFiles files;
        files.add_folder(folder.path("a/"));
        files.add(folder.path("a/0"), "output");
        files.add(folder.path("r.json"), "content");
    }
    CHECK_EQUAL(0U, folder.count());
}

TEST(result_files_keep_the_old_content_until_commit) {
    const ScratchFolder folder;
    const std::string path = folder.write("r.json", "old");
    {
        ResultFiles files;
        files.add(path, "new");
    }
    CHECK_EQUAL("old", read_file(path));
    write_and_commit(path, "new");
    CHECK_EQUAL("new", read_file(path));
}

TEST(result_files_keep_a_link_a_link) {
    const ScratchFolder folder;
    const std::string target = folder.write("target", "old");
    std::filesystem::create_symlink(target, folder.path("link"));
    write_and_commit(folder.path("link"), "new");
    CHECK(std::filesystem::is_symlink(folder.path("link")));
    CHECK_EQUAL("new", read_file(target));
}

/// S3-6: a link that was planted where a temporary file would be had its target overwritten.
TEST(result_files_write_through_no_planted_link) {
    const ScratchFolder folder;
    const std::string target = folder.write("target", "old");
    const std::string path = folder.path("r.json");
    std::filesystem::create_symlink(target, path + ".tmp" + std::to_string(getpid()));
    ResultFiles files;
    files.add(path, "new");
    std::string first;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path(""))) {
        first = entry.path() == target || entry.is_symlink() ? first : entry.path().string();
    }
    files.commit();
    CHECK_EQUAL("old", read_file(target));
    CHECK_EQUAL("new", read_file(path));
    // And the next file's name is not this one's, which may be a link by then.
    std::filesystem::create_symlink(target, first);
    write_and_commit(path, "newer");
    CHECK_EQUAL("old", read_file(target));
    CHECK_EQUAL("newer", read_file(path));
}

/// S3-6: the files before the one that could not be renamed were there all the same.
TEST(result_files_take_back_what_a_failed_commit_has_renamed) {
    const ScratchFolder folder;
    const std::string old = folder.write("old.json", "old");
    {
        ResultFiles files;
        files.add_folder(folder.path("o"));
        files.add(folder.path("o/0"), "output");
        files.add(old, "new");
        files.add(folder.path("r.json"), "content");
        std::filesystem::create_directory(folder.path("r.json"));
        const auto error = CATCH(RunnerError, files.commit());
        CHECK_EQUAL("cannot write " + folder.path("r.json") +
                        " (Is a directory): choose a path in a folder that exists and can be "
                        "written to",
                    std::string(error.what()));
    }
    CHECK_EQUAL("old", read_file(old));
    CHECK(std::filesystem::is_empty(folder.path("r.json")));
    CHECK_EQUAL(2U, folder.count());
}

TEST(result_files_replace_what_was_there_together) {
    const ScratchFolder folder;
    const std::string one = folder.write("1.json", "old");
    const std::string two = folder.write("2.json", "old");
    ResultFiles files;
    files.add(one, "new");
    files.add(two, "new");
    files.commit();
    CHECK_EQUAL("new", read_file(one));
    CHECK_EQUAL("new", read_file(two));
    CHECK_EQUAL(2U, folder.count());
}

TEST(result_files_report_a_full_disk) {
    const auto error = CATCH(RunnerError, write_and_commit("/dev/full", "content"));
    CHECK_EQUAL(
        "cannot write /dev/full (No space left on device): free some space or choose another disk",
        std::string(error.what()));
    CHECK(error.code() == ExitCode::kOutput);
    CHECK(std::filesystem::is_character_file("/dev/full"));
}

TEST(result_files_remove_what_they_could_not_finish) {
    const ScratchFolder folder;
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string path = folder.path("large");
    const auto error = CATCH(RunnerError, write_and_commit(path, std::string(5000, 'x')));
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    CHECK_EQUAL(
        "cannot write " + path + " (File too large): free some space or choose another disk",
        std::string(error.what()));
    CHECK_EQUAL(0U, folder.count());
}

TEST(result_files_refuse_a_folder_that_is_not_there) {
    const ScratchFolder folder;
    const std::string path = folder.path("missing/r.json");
    const auto error = CATCH(RunnerError, require_writable(path));
    CHECK_EQUAL("cannot write " + path +
                    " (No such file or directory): choose a path in a folder that exists and can "
                    "be written to",
                std::string(error.what()));
}

TEST(result_files_refuse_a_folder_as_file) {
    const ScratchFolder folder;
    const auto error = CATCH(RunnerError, require_writable(folder.path("")));
    CHECK_EQUAL("cannot write " + folder.path("") +
                    " (Is a directory): choose a path in a folder that exists and can be written "
                    "to",
                std::string(error.what()));
}

TEST(result_folder_is_refused_before_it_is_needed) {
    const ScratchFolder folder;
    const std::string path = folder.write("file", "content");
    const auto error = CATCH(RunnerError, require_writable(path, true));
    CHECK_EQUAL("cannot write " + path +
                    " (Not a directory): choose a path in a folder that exists and can be written "
                    "to",
                std::string(error.what()));
    CATCH(RunnerError, require_writable(path + "/a", true));
    CATCH(RunnerError, require_writable(folder.path("missing/a"), true));
    for (const char* name : {"a", "a/", ""}) {
        require_writable(folder.path(name), true);
    }
    require_writable("not_there", true);
    CHECK_EQUAL(1U, folder.count());
}

TEST(result_files_keep_a_folder_that_was_there) {
    const ScratchFolder folder;
    std::filesystem::create_directory(folder.path("a"));
    {
        ResultFiles files;
        files.add_folder(folder.path("a"));
    }
    CHECK(std::filesystem::is_directory(folder.path("a")));
}

TEST(result_files_refuse_a_file_in_the_place_of_a_folder) {
    const ScratchFolder folder;
    const std::string path = folder.write("file", "content");
    const auto error = CATCH(RunnerError, ResultFiles().add_folder(path));
    CHECK_EQUAL("cannot write " + path +
                    " (Not a directory): choose a path in a folder that exists and can be written "
                    "to",
                std::string(error.what()));
}

/// Ends as the signal asks although nothing interrupts the wait: the signal came before it.
[[noreturn]] void wait_after_signal(int signal_number) {
    int ends[2];
    // What a defect would wait for without end.
    std::thread([] {
        std::this_thread::sleep_for(std::chrono::seconds(20));
        _exit(4);
    }).detach();
    if (pipe(ends) != 0) {
        _exit(1);
    }
    {
        const ResultFiles files;
        std::raise(signal_number);
        char byte = 0;
        const ssize_t count = read(ends[0], &byte, 1);
        if (count != -1 || errno != EINTR) {
            _exit(2);
        }
    }
    _exit(3);
}

TEST(result_files_end_a_wait_that_begins_after_the_signal) {
    std::map<pid_t, int> children;
    for (const int signal_number : {SIGHUP, SIGINT, SIGTERM}) {
        std::signal(signal_number, SIG_DFL);
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            wait_after_signal(signal_number);
        }
        children[child] = signal_number;
    }
    for (const auto& [child, signal_number] : children) {
        int status = 0;
        CHECK_EQUAL(child, waitpid(child, &status, 0));
        CHECK(WIFSIGNALED(status));
        CHECK_EQUAL(signal_number, WTERMSIG(status));
    }
}

}  // namespace
