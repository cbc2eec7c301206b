#include "stablehlo/mlir.h"
weft_status *mlir_read_bytecode(mlir_program *program) { (void)program; return WEFT_ERR(UNIMPLEMENTED, "MLIR bytecode is not read yet"); }
