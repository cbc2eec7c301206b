# tests of src/codegen
