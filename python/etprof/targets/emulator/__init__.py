"""The emulator target: QEMU and a set-up SDK that runs Arm programs where there is no Arm CPU."""
