# tests of src/passes
