/* The MFCC of one clip in double precision, four frames at a time, one frame to a lane: every step is then the same
 * instruction on four frames, with no shuffles. The arithmetic is that of kws_edge/model/features.py.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define N 256     /* complex points: a real transform of 512 */
#define FRAMES 4  /* lanes */
#define MAX_MELS 128

typedef double v4 __attribute__((vector_size(32)));

typedef struct { v4 re, im; } c4;

static inline c4 add(c4 a, c4 b) { return (c4){a.re + b.re, a.im + b.im}; }
static inline c4 sub(c4 a, c4 b) { return (c4){a.re - b.re, a.im - b.im}; }
/* a · (w.re + i w.im), a scalar w */
static inline c4 turn(c4 a, double re, double im)
{
    return (c4){a.re * re - a.im * im, a.re * im + a.im * re};
}

/* Tables from Python: window [window]; twiddle [2 · N], cos and -sin of 2πk/(2N) interleaved for k < N; filters as
 * first bin, count and weights one after the other; dct [n_mels][n_mfcc]. */
typedef struct {
    int64_t window, hop, n_mels, n_mfcc;
    double log_floor;
    const double *hann, *twiddle;
    const int64_t *first, *count;
    const double *weights, *dct;
} FrontEnd;

/* Stockham's transform of N = 4^4 points, radix 4: reads and writes in order, no bit reversal. Result in x. */
static void fft(c4 *x, c4 *y, const double *twiddle)
{
    for (int n = N, s = 1; n > 1; n /= 4, s *= 4) {
        const int quarter = n / 4;
        for (int p = 0; p < quarter; p++) {
            const double *w1 = twiddle + 2 * (2 * s * p), *w2 = twiddle + 2 * (4 * s * p);
            const double w3re = w1[0] * w2[0] - w1[1] * w2[1], w3im = w1[0] * w2[1] + w1[1] * w2[0];
            for (int q = 0; q < s; q++) {
                const c4 a = x[q + s * p], b = x[q + s * (p + quarter)];
                const c4 c = x[q + s * (p + 2 * quarter)], d = x[q + s * (p + 3 * quarter)];
                const c4 ac = add(a, c), a_c = sub(a, c), bd = add(b, d), b_d = sub(b, d);
                const c4 i_bd = {-b_d.im, b_d.re};
                c4 *out = y + q + s * 4 * p;
                out[0] = add(ac, bd);
                out[s] = turn(sub(a_c, i_bd), w1[0], w1[1]);
                out[2 * s] = turn(sub(ac, bd), w2[0], w2[1]);
                out[3 * s] = turn(add(a_c, i_bd), w3re, w3im);
            }
        }
        c4 *swap = x;
        x = y;
        y = swap;
    }
}

/* samples: at least window + hop · (frames - 1). out: coefficient k of frame t at out[k · stride + t]. */
void mfcc(const float *samples, int64_t frames, const FrontEnd *fe, float *out, int64_t stride)
{
    c4 a[N], b[N];
    v4 power[N + 1], log_mel[MAX_MELS];
    for (int64_t t = 0; t < frames; t += FRAMES) {
        const int64_t lanes = frames - t < FRAMES ? frames - t : FRAMES;
        memset(a, 0, sizeof a);
        for (int64_t lane = 0; lane < lanes; lane++) {
            const float *x = samples + (t + lane) * fe->hop;
            for (int64_t i = 0; i < fe->window; i++)
                ((double *)&a[i / 2])[(i % 2) * FRAMES + lane] = x[i] * fe->hann[i];
        }
        fft(a, b, fe->twiddle);
        /* Two real transforms were packed as one: X[k] = (Z[k] + Z*[N-k])/2 - i e^(-iπk/N) (Z[k] - Z*[N-k])/2. */
        for (int k = 0; k <= N; k++) {
            const c4 z = a[k % N], m = a[(N - k) % N];
            const c4 even = {0.5 * (z.re + m.re), 0.5 * (z.im - m.im)};
            const c4 odd = {0.5 * (z.im + m.im), -0.5 * (z.re - m.re)};
            const double re = k < N ? fe->twiddle[2 * k] : -1.0, im = k < N ? fe->twiddle[2 * k + 1] : 0.0;
            const c4 X = add(even, turn(odd, re, im));
            power[k] = (X.re * X.re + X.im * X.im) / (2.0 * N);
        }
        const double *weight = fe->weights;
        for (int64_t j = 0; j < fe->n_mels; j++) {
            v4 energy = {0};
            for (int64_t i = 0; i < fe->count[j]; i++)
                energy += *weight++ * power[fe->first[j] + i];
            for (int lane = 0; lane < FRAMES; lane++)
                log_mel[j][lane] = log(energy[lane] > fe->log_floor ? energy[lane] : fe->log_floor);
        }
        for (int64_t k = 0; k < fe->n_mfcc; k++) {
            v4 sum = {0};
            for (int64_t j = 0; j < fe->n_mels; j++)
                sum += log_mel[j] * fe->dct[k * fe->n_mels + j];
            for (int64_t lane = 0; lane < lanes; lane++)
                out[k * stride + t + lane] = (float)sum[lane];
        }
    }
}
