#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "check.h"
#include "files.h"
#include "runner_error.h"
#include "scratch_folder.h"

namespace {

using namespace etprof;
using etprof::testing::read_file;
using etprof::testing::ScratchFolder;

TEST(atomic_file_appears_on_commit_alone) {
    const ScratchFolder folder;
    AtomicFile file(folder.path("r.json"), "content");
    CHECK(!std::filesystem::exists(folder.path("r.json")));
    file.commit();
    CHECK_EQUAL("content", read_file(folder.path("r.json")));
    CHECK_EQUAL(1U, folder.count());
}

TEST(atomic_file_leaves_nothing_without_commit) {
    const ScratchFolder folder;
    {
        const AtomicFile file(folder.path("r.json"), "content");
    }
    CHECK_EQUAL(0U, folder.count());
}

TEST(atomic_file_keeps_the_old_content_until_commit) {
    const ScratchFolder folder;
    const std::string path = folder.write("r.json", "old");
    {
        const AtomicFile file(path, "new");
    }
    CHECK_EQUAL("old", read_file(path));
    AtomicFile(path, "new").commit();
    CHECK_EQUAL("new", read_file(path));
}

TEST(atomic_file_keeps_a_link_a_link) {
    const ScratchFolder folder;
    const std::string target = folder.write("target", "old");
    std::filesystem::create_symlink(target, folder.path("link"));
    AtomicFile(folder.path("link"), "new").commit();
    CHECK(std::filesystem::is_symlink(folder.path("link")));
    CHECK_EQUAL("new", read_file(target));
}

TEST(atomic_file_reports_a_full_disk) {
    const auto error = CATCH(RunnerError, AtomicFile("/dev/full", "content"));
    CHECK_EQUAL(
        "cannot write /dev/full (No space left on device): free some space or choose another disk",
        std::string(error.what()));
    CHECK(error.code() == ExitCode::kOutput);
    CHECK(std::filesystem::is_character_file("/dev/full"));
}

TEST(atomic_file_removes_what_it_could_not_finish) {
    const ScratchFolder folder;
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string path = folder.path("large");
    const auto error = CATCH(RunnerError, AtomicFile(path, std::string(5000, 'x')));
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    CHECK_EQUAL(
        "cannot write " + path + " (File too large): free some space or choose another disk",
        std::string(error.what()));
    CHECK_EQUAL(0U, folder.count());
}

TEST(atomic_file_refuses_a_folder_that_is_not_there) {
    const ScratchFolder folder;
    const std::string path = folder.path("missing/r.json");
    const auto error = CATCH(RunnerError, require_writable(path));
    CHECK_EQUAL("cannot write " + path +
                    " (No such file or directory): choose a path in a folder that exists and can "
                    "be written to",
                std::string(error.what()));
}

TEST(atomic_file_refuses_a_folder_as_file) {
    const ScratchFolder folder;
    const auto error = CATCH(RunnerError, require_writable(folder.path("")));
    CHECK_EQUAL("cannot write " + folder.path("") +
                    " (Is a directory): choose a path in a folder that exists and can be written "
                    "to",
                std::string(error.what()));
}

TEST(atomic_folder_is_refused_before_it_is_needed) {
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

TEST(atomic_folder_goes_away_without_commit) {
    const ScratchFolder folder;
    {
        const AtomicFolder made(folder.path("a/"));
    }
    CHECK_EQUAL(0U, folder.count());
    AtomicFolder(folder.path("a")).commit();
    {
        const AtomicFolder found(folder.path("a"));
    }
    CHECK(std::filesystem::is_directory(folder.path("a")));
}

TEST(atomic_folder_refuses_a_file_in_its_place) {
    const ScratchFolder folder;
    const std::string path = folder.write("file", "content");
    const auto error = CATCH(RunnerError, AtomicFolder{path});
    CHECK_EQUAL("cannot write " + path +
                    " (Not a directory): choose a path in a folder that exists and can be written "
                    "to",
                std::string(error.what()));
}

}  // namespace
