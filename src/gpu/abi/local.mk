# src/gpu/abi: the binary interfaces of foreign libraries, in Weft's own words; headers only.
libweftcore_la_SOURCES += %D%/constants.h %D%/cublas.h %D%/cublaslt.h %D%/cuda.h %D%/cudnn.h %D%/cufft.h %D%/cusolver.h %D%/entries.h %D%/nccl.h %D%/nvjitlink.h %D%/types.h
