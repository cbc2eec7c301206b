# tests of src/collective
