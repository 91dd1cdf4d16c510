/* Every bound of the test suite and of `gdn verify`. A bound is a design decision (docs/numerics.md): the library must meet
 * it, and it is not raised to make a test pass. All are relative. */
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

/* Where the terms that a chunk adds up cancel, because keys are alike, what rounding them costs grows: those bounds are
 * multiplied by this much of the root of the sum of the terms' squares over the result's (docs/numerics.md). About 1.5
 * times what float64 gives with nothing but the operands rounded. */
#define TOLERANCE_CANCELLATION 0.75

/* `gdn verify` adds up no terms: what it multiplies those bounds by where all keys are the same. */
#define TOLERANCE_REPEATED_KEYS 4

/* The same on standard inputs, where other implementations were measured: bfloat16, Frobenius error of all heads. */
#define TOLERANCE_STANDARD_O 3.9e-3
#define TOLERANCE_STANDARD_STATE 3.5e-3

/* Operands rounded to TF32: `gdn verify`, whose inputs are mild. */
#define TOLERANCE_TF32 1e-3
#define TOLERANCE_TF32_ROW 1e-2

/* Laws that hold but for the order of float32 sums. */
#define TOLERANCE_LAW 1e-5

#endif
