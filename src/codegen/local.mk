# src/codegen: see README.md in this folder.
