"""A "device" on this machine: the real adb server and the real adbd, Android's commands played."""
