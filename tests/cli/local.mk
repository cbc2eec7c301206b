# tests of src/cli
