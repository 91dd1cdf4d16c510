/* Seeded random numbers that are the same on every machine: SplitMix64. */
#ifndef GDN_TESTS_RANDOM_H
#define GDN_TESTS_RANDOM_H

#include <math.h>
#include <stdint.h>

typedef struct test_random {
    uint64_t state;
} test_random;

static inline uint64_t random_bits(test_random *random)
{
    uint64_t z = (random->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A generator of its own for (seed, stream): drawing more from one stream moves no other. */
static inline test_random random_stream(uint64_t seed, uint64_t stream)
{
    test_random random = {seed * 0x9e3779b97f4a7c15u + stream * 0xd1342543de82ef95u};
    random.state = random_bits(&random);
    return random;
}

/* Uniform in (0, 1): neither end is ever drawn. */
static inline double random_uniform(test_random *random)
{
    return ((double)(random_bits(random) >> 11) + 0.5) * 0x1p-53;
}

static inline double random_between(test_random *random, double low, double high)
{
    return low + (high - low) * random_uniform(random);
}

/* Standard normal, by Box and Muller. */
static inline double random_normal(test_random *random)
{
    const double radius = sqrt(-2.0 * log(random_uniform(random)));
    return radius * cos(6.283185307179586 * random_uniform(random));
}

/* Uniform in 0..count-1. */
static inline int64_t random_index(test_random *random, int64_t count)
{
    return (int64_t)(random_bits(random) % (uint64_t)count);
}

#endif
