// The kernels of decoder_cpu.h and experts_cpu.h for one instruction set; kernels/CMakeLists.txt gives this file its flags.
#define DRAFTMILL_KERNEL_NAMESPACE kernels_avx512
#include "kernels/decoder_cpu_body.h"
#include "kernels/experts_cpu_body.h"
