# tests of src/cpu
