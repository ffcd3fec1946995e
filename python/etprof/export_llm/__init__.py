"""ExecuTorch's own export of language models: its YAML checked, run as a process, and described."""
