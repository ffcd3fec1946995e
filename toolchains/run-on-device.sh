#!/bin/sh
# Runs a program on the attached Android device: CTest puts this in front of every test.
#
# run-on-device.sh BUILD FOLDER PROGRAM [ARGUMENT…]
#
# Copies what the tests of build tree BUILD read into FOLDER on the device, where it has changed,
# and the program, with the C++ library that BUILD has if it is shared; the exit code is the
# program's. ANDROID_SERIAL chooses among several devices.
# ETPROF_DEVICE_LAUNCHER has words to put before the program there, such as `taskset f0`.
set -eu

build=$1 folder=$2 program=$3
shift 3

# The device may have one of another build tree, which would be tested in its place.
if [ ! -x "$program" ]; then
    echo "run-on-device: there is no $program; build it first" >&2
    exit 1
fi
if ! adb get-state >/dev/null 2>&1; then
    echo "run-on-device: no device is ready; attach one, or choose one of \`adb devices\` with ANDROID_SERIAL" >&2
    exit 1
fi

quote() { # a word that the device's shell takes as it is
    printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}

# One at a time: CTest may run several tests at once, and each would copy.
copy() {
    for item in "$build/cpp/runner/etprof-runner" "$build/tests/cpp/runner/programs" \
        "$build/tests/cpp/etdump/seeds" "$build/cpp/runner/libc++_shared.so" "$program"; do
        if [ -e "$item" ]; then
            adb push --sync "$item" "$folder/" >/dev/null
        fi
    done
}
adb shell "mkdir -p $(quote "$folder/tmp")"
if command -v flock >/dev/null; then
    (flock 9 && copy) 9>"$build/run-on-device.lock"
else
    copy
fi

command="cd $(quote "$folder") && export TMPDIR=$(quote "$folder/tmp")"
command="$command ETPROF_PROGRAMS=$(quote "$folder/programs") ETPROF_SEEDS=$(quote "$folder/seeds")"
if [ -e "$build/cpp/runner/libc++_shared.so" ]; then
    command="$command && export LD_LIBRARY_PATH=$(quote "$folder")"
fi
if [ -n "${ETPROF_DEVICE_LAUNCHER:-}" ]; then
    # Tests start the runner, behind the same words.
    command="$command && export ETPROF_DEVICE_LAUNCHER=$(quote "$ETPROF_DEVICE_LAUNCHER")"
fi
command="$command && exec ${ETPROF_DEVICE_LAUNCHER:-} ./$(quote "$(basename "$program")")"
for argument in "$@"; do
    command="$command $(quote "$argument")"
done
exec adb shell "$command"
