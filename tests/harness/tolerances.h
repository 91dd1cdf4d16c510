/* Every bound of the test suite. A bound is a design decision (docs/numerics.md): it is met by the library,
 * never moved to meet one. All are relative. */
#ifndef GDN_TESTS_TOLERANCES_H
#define GDN_TESTS_TOLERANCES_H

/* CPU, and float32 products generally: Frobenius error of o, and of each state. */
#define TOLERANCE_FROBENIUS 2e-6
#define TOLERANCE_FROBENIUS_ADVERSARIAL 1e-5

/* The same of each head of them alone, and the largest error against the largest value of that head. */
#define TOLERANCE_HEAD 1e-5
#define TOLERANCE_LARGEST 1e-4

/* ||row - ref|| / max(||ref||, RMS row norm of that head), worst row of o and of each state. */
#define TOLERANCE_ROW 1e-5

/* A 16-bit output: every element within half an ulp plus this much of the RMS row norm. */
#define TOLERANCE_ROUNDED 1e-5

/* CPU, operands rounded to bfloat16: numerics BF16. Rows as for tensor cores. */
#define TOLERANCE_CPU_BF16 5e-3

/* A GPU's float32 products are summed in another order. */
#define TOLERANCE_GPU_FROBENIUS 5e-6

/* A GPU's tensor cores with operands rounded to 16 bits. */
#define TOLERANCE_TENSOR_CORE_O 6e-3
#define TOLERANCE_TENSOR_CORE_STATE 5e-3
#define TOLERANCE_TENSOR_CORE_ROW 2e-2

/* Laws that hold but for the order of float32 sums. */
#define TOLERANCE_LAW 1e-5

#endif
