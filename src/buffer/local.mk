# src/buffer: see README.md in this folder.
