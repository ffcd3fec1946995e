"""How tables look: on terminals, as Markdown, HTML, files, frames and traces."""
