"""Android devices through the real adb: choosing one, its files, its settings, launches on it."""
