/* The training step's hot loops, one clip at a time so that everything a clip needs stays in the second-level cache.
 *
 * Activations are in panels: float [B][C/16][T][16]. Sixteen channels are two AVX registers or four NEON ones; a frame
 * of a panel is one cache line; a depthwise convolution, a 1x1 convolution and both of its gradients all read panels
 * front to back, aligned, with nothing to repack. C is a multiple of 16, T of 8.
 *
 * What is stored between layers is the convolution's output before its normalisation. The consumer normalises, adds
 * the residual and applies ReLU as it loads a clip; the backward pass does so again instead of reading a stored copy.
 *
 * Every function handles clips [first, last) and writes sums over those clips to buffers of its own, so that threads
 * need nothing from each other.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
#define FETCH 24 /* cache lines to fetch ahead per six-row product */
#define MAX_TAPS 14 /* accumulators of a tap gradient that fit the registers */
#define INLINE static inline __attribute__((always_inline))

typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t m8 __attribute__((vector_size(32), aligned(4), may_alias));

INLINE v8 load(const float *p) { return *(const v8 *)p; }
INLINE void store(float *p, v8 v) { *(v8 *)p = v; }
/* NaN stays NaN, as in torch: a diverged run must show. */
INLINE v8 relu(v8 v) { return (v8)((m8)v & ~(v <= 0.0f)); }
INLINE v8 where_positive(v8 condition, v8 v) { return (v8)((m8)v & (condition > 0.0f)); }

/* An activation: relu(scale * raw + shift [+ scale2 * raw2 + shift2]); as it is, where scale is NULL. */
typedef struct {
    const float *raw, *scale, *shift;
    const float *raw2, *scale2, *shift2;
} Activation;

/* The gradient of a batch normalisation's input: gain * grad + slope * raw + offset. */
typedef struct {
    const float *grad, *raw;
    const float *gain, *slope, *offset;
} NormGradient;

/* A convolution: taps [in/16][kernel][16], or kernel = 1 without; forward weights [out/16][in][16], backward
 * weights [in/16][out][16]. */
typedef struct {
    int64_t in, out, kernel, dilation;
    const float *taps, *forward, *backward;
} Convolution;

/* A clip in cache: [panels][halo + T + halo][16], halos zero. */
typedef struct {
    float *data; /* frame 0 of panel 0 */
    float *memory;
    int64_t stride; /* floats from panel to panel */
} Tile;

static int tile_create(Tile *tile, int64_t channels, int64_t T, int64_t halo)
{
    tile->stride = (T + 2 * halo) * LANES;
    size_t bytes = (size_t)(channels / LANES * tile->stride) * sizeof(float);
    tile->memory = aligned_alloc(64, bytes);
    if (!tile->memory)
        return 0;
    memset(tile->memory, 0, bytes);
    tile->data = tile->memory + halo * LANES;
    return 1;
}

static void activate(const Activation *a, int64_t clip, int64_t channels, int64_t T, Tile tile)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        int64_t at = (clip * channels + c) * T;
        const float *x = a->raw + at;
        float *y = tile.data + c / LANES * tile.stride;
        if (!a->scale) {
            memcpy(y, x, (size_t)(T * LANES) * sizeof(float));
            continue;
        }
        v8 scale[2], shift[2];
        for (int h = 0; h < 2; h++) {
            scale[h] = load(a->scale + c + 8 * h);
            shift[h] = load(a->shift + c + 8 * h);
        }
        if (!a->raw2) {
            for (int64_t t = 0; t < T * LANES; t += LANES)
                for (int h = 0; h < 2; h++)
                    store(y + t + 8 * h, relu(scale[h] * load(x + t + 8 * h) + shift[h]));
            continue;
        }
        const float *x2 = a->raw2 + at;
        v8 scale2[2];
        for (int h = 0; h < 2; h++) {
            scale2[h] = load(a->scale2 + c + 8 * h);
            shift[h] += load(a->shift2 + c + 8 * h);
        }
        for (int64_t t = 0; t < T * LANES; t += LANES)
            for (int h = 0; h < 2; h++)
                store(y + t + 8 * h,
                      relu(scale[h] * load(x + t + 8 * h) + (scale2[h] * load(x2 + t + 8 * h) + shift[h])));
    }
}

static void norm_gradient(const NormGradient *g, int64_t clip, int64_t channels, int64_t T, Tile tile)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        int64_t at = (clip * channels + c) * T;
        const float *grad = g->grad + at, *raw = g->raw + at;
        float *y = tile.data + c / LANES * tile.stride;
        v8 gain[2], slope[2], offset[2];
        for (int h = 0; h < 2; h++) {
            gain[h] = load(g->gain + c + 8 * h);
            slope[h] = load(g->slope + c + 8 * h);
            offset[h] = load(g->offset + c + 8 * h);
        }
        for (int64_t t = 0; t < T * LANES; t += LANES)
            for (int h = 0; h < 2; h++)
                store(y + t + 8 * h,
                      gain[h] * load(grad + t + 8 * h) + (slope[h] * load(raw + t + 8 * h) + offset[h]));
    }
}

/* y[t] = sum over k of taps[k] * x[t + (k - kernel/2) * dilation]; with `flip`, taps from the last to the first. */
static void depthwise(const Convolution *conv, int flip, int64_t T, Tile x, Tile y)
{
    int64_t kernel = conv->kernel, step = conv->dilation * LANES;
    for (int64_t c = 0; c < conv->in; c += 8) {
        const float *taps = conv->taps + c / LANES * kernel * LANES + (c & 8) + (flip ? (kernel - 1) * LANES : 0);
        const int64_t tap_step = flip ? -LANES : LANES;
        const float *from = x.data + c / LANES * x.stride + (c & 8) - kernel / 2 * step;
        float *to = y.data + c / LANES * y.stride + (c & 8);
        for (int64_t t = 0; t < T * LANES; t += 8 * LANES) {
            v8 sum[8] = {0};
            for (int64_t k = 0; k < kernel; k++) {
                v8 w = load(taps + k * tap_step);
                const float *p = from + t + k * step;
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++)
                    sum[j] += w * load(p + j * LANES);
            }
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++)
                store(to + t + j * LANES, sum[j]);
        }
    }
}

/* d_taps[k] += sum over t of dy[t] * x[t + k * step], for n taps. */
INLINE void some_taps(const int n, const float *x, int64_t step, const float *dy, int64_t T, float *d_taps)
{
    v8 sum[MAX_TAPS] = {0};
    for (int64_t t = 0; t < T * LANES; t += LANES) {
        v8 g = load(dy + t);
#pragma GCC unroll 16
        for (int k = 0; k < n; k++)
            sum[k] += g * load(x + t + k * step);
    }
#pragma GCC unroll 16
    for (int k = 0; k < n; k++)
        store(d_taps + k * LANES, load(d_taps + k * LANES) + sum[k]);
}

static void depthwise_taps(const Convolution *conv, int64_t T, Tile x, Tile dy, float *d_taps)
{
    int64_t kernel = conv->kernel, step = conv->dilation * LANES;
    int64_t groups = (kernel + MAX_TAPS - 1) / MAX_TAPS;
    for (int64_t c = 0; c < conv->in; c += 8) {
        const float *from = x.data + c / LANES * x.stride + (c & 8) - kernel / 2 * step;
        const float *g = dy.data + c / LANES * dy.stride + (c & 8);
        float *to = d_taps + c / LANES * kernel * LANES + (c & 8);
        for (int64_t group = 0, k = 0; group < groups; group++) {
            int64_t n = (kernel * (group + 1)) / groups - k;
            switch (n) {
#define CASE(N) case N: some_taps(N, from + k * step, step, g, T, to + k * LANES); break;
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7)
            CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
#undef CASE
            }
            k += n;
        }
    }
}

/* What the next clip will read, fetched a few cache lines at a time between the products of this one: the passes over
 * activations would otherwise wait for memory. */
typedef struct {
    const char *at[5], *end[5];
    int count;
} Ahead;

static void look_ahead(Ahead *ahead, const float *base, int64_t clip, int64_t size)
{
    if (!base)
        return;
    ahead->at[ahead->count] = (const char *)(base + clip * size);
    ahead->end[ahead->count++] = (const char *)(base + (clip + 1) * size);
}

INLINE void fetch(Ahead *ahead, int lines)
{
    if (!ahead->count)
        return;
    const char **at = &ahead->at[ahead->count - 1];
    for (int i = 0; i < lines; i++, *at += 64)
        __builtin_prefetch(*at, 0, 2);
    if (*at >= ahead->end[ahead->count - 1])
        ahead->count--;
}

/* `rows` frames of one panel of y = x w (+ y): twelve accumulators, two weights and a broadcast fill AVX's registers. */
INLINE void product_rows(const int rows, const int add, const float *x, int64_t stride, int64_t panels, const float *w,
                         float *y)
{
    v8 sum[6][2];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        sum[r][0] = add ? load(y + r * LANES) : (v8){0};
        sum[r][1] = add ? load(y + r * LANES + 8) : (v8){0};
    }
    for (int64_t p = 0; p < panels; p++, x += stride) {
#pragma GCC unroll 4
        for (int j = 0; j < LANES; j++, w += LANES) {
            v8 w0 = load(w), w1 = load(w + 8);
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                sum[r][0] += x[r * LANES + j] * w0;
                sum[r][1] += x[r * LANES + j] * w1;
            }
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        store(y + r * LANES, sum[r][0]);
        store(y + r * LANES + 8, sum[r][1]);
    }
}

/* One panel of y = x w, or y += x w. */
INLINE void product_panel(const int add, const float *x, int64_t stride, int64_t panels, const float *w, int64_t T,
                          float *y, Ahead *ahead)
{
    int64_t t = 0;
    for (; T - t >= 6 && T - t != 8; t += 6) {
        fetch(ahead, FETCH);
        product_rows(6, add, x + t * LANES, stride, panels, w, y + t * LANES);
    }
    for (; T - t >= 4; t += 4)
        product_rows(4, add, x + t * LANES, stride, panels, w, y + t * LANES);
    for (; T - t >= 2; t += 2)
        product_rows(2, add, x + t * LANES, stride, panels, w, y + t * LANES);
}

/* raw = x w for one clip, and the sums of raw and raw * raw over its frames. sums: double [2][out]. */
static void pointwise(const Convolution *conv, int64_t clip, int64_t T, Tile x, float *raw, double *sums,
                      Ahead *ahead)
{
    for (int64_t o = 0; o < conv->out; o += LANES) {
        float *y = raw + (clip * conv->out + o) * T;
        product_panel(0, x.data, x.stride, conv->in / LANES, conv->forward + o * conv->in, T, y,
                      ahead);
        v8 s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0};
        for (int64_t t = 0; t < T * LANES; t += LANES) {
            v8 y0 = load(y + t), y1 = load(y + t + 8);
            s0 += y0, s1 += y1;
            q0 += y0 * y0, q1 += y1 * y1;
        }
        for (int j = 0; j < 8; j++) {
            sums[o + j] += s0[j], sums[o + 8 + j] += s1[j];
            sums[conv->out + o + j] += q0[j], sums[conv->out + o + 8 + j] += q1[j];
        }
    }
}

/* dx = dy w^T, or dx += dy w^T. */
static void pointwise_input(const Convolution *conv, int add, int64_t T, Tile dy, Tile dx, Ahead *ahead)
{
    for (int64_t i = 0; i < conv->in; i += LANES) {
        const float *w = conv->backward + i * conv->out;
        float *y = dx.data + i / LANES * dx.stride;
        if (add)
            product_panel(1, dy.data, dy.stride, conv->out / LANES, w, T, y, ahead);
        else
            product_panel(0, dy.data, dy.stride, conv->out / LANES, w, T, y, ahead);
    }
}

/* d_w[i][:] += sum over t of x[t][i] * dy[t][:] for `rows` channels of one panel. */
INLINE void outer_rows(const int rows, const float *x, const float *dy, int64_t T, float *d_w)
{
    v8 sum[6][2] = {0};
#pragma GCC unroll 4
    for (int64_t t = 0; t < T * LANES; t += LANES) {
        v8 g0 = load(dy + t), g1 = load(dy + t + 8);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            sum[r][0] += x[t + r] * g0;
            sum[r][1] += x[t + r] * g1;
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        store(d_w + r * LANES, load(d_w + r * LANES) + sum[r][0]);
        store(d_w + r * LANES + 8, load(d_w + r * LANES + 8) + sum[r][1]);
    }
}

/* d_w [out/16][in][16] += x^T dy over the clip's frames. */
static void pointwise_weight(const Convolution *conv, int64_t T, Tile x, Tile dy, float *d_w, Ahead *ahead)
{
    for (int64_t i = 0; i < conv->in; i += LANES) {
        const float *from = x.data + i / LANES * x.stride;
        for (int64_t o = 0; o < conv->out; o += LANES) {
            const float *g = dy.data + o / LANES * dy.stride;
            float *to = d_w + o * conv->in + i * LANES;
            fetch(ahead, FETCH);
            outer_rows(6, from, g, T, to);
            fetch(ahead, FETCH);
            outer_rows(6, from + 6, g, T, to + 6 * LANES);
            outer_rows(4, from + 12, g, T, to + 12 * LANES);
        }
    }
}

/* Mask the gradient of an activation by its ReLU, write it out, add up what the batch normalisations before it need:
 * sums, double [3][channels], of grad, grad * raw and grad * raw2. grad_step 0: the gradient is constant in time, in
 * the frames from `from` to before `to`, and zero in the others. */
static void masked_gradient(const Activation *a, int64_t clip, int64_t channels, int64_t T, Tile active,
                            const float *grad, int64_t grad_stride, int64_t grad_step, int64_t from, int64_t to,
                            float *out, double *sums)
{
    for (int64_t c = 0; c < channels; c += LANES) {
        int64_t at = (clip * channels + c) * T;
        const float *y = active.data + c / LANES * active.stride;
        const float *g = grad + c / LANES * grad_stride;
        const float *x = a->raw + at, *x2 = a->raw2 ? a->raw2 + at : x;
        float *d = out + at;
        v8 sum[3][2] = {0};
        memset(d, 0, from * LANES * sizeof *d);
        memset(d + to * LANES, 0, (T - to) * LANES * sizeof *d);
        for (int64_t t = from; t < to; t++, g += grad_step)
            for (int h = 0; h < 2; h++) {
                int64_t i = t * LANES + 8 * h;
                v8 m = where_positive(load(y + i), load(g + 8 * h));
                store(d + i, m);
                sum[0][h] += m;
                sum[1][h] += m * load(x + i);
                sum[2][h] += m * load(x2 + i);
            }
        for (int q = 0; q < 3; q++)
            for (int j = 0; j < LANES; j++)
                sums[q * channels + c + j] += sum[q][j / 8][j % 8];
    }
}

static int64_t halo(const Convolution *conv) { return conv->kernel / 2 * conv->dilation; }

/* raw = conv(activation), and raw2 = conv2(activation) where there is a conv2 (without taps).
 * sums: double [2][out], zero at the start. Returns 0, or 1 without memory. */
int stage_forward(int64_t first, int64_t last, int64_t T, const Activation *input, const Convolution *conv, float *raw,
                  double *sums, const Convolution *conv2, float *raw2, double *sums2)
{
    Tile x = {0}, u = {0};
    int failed = !tile_create(&x, conv->in, T, halo(conv)) || !tile_create(&u, conv->in, T, 0);
    for (int64_t clip = first; clip < last && !failed; clip++) {
        Ahead ahead = {0};
        if (clip + 1 < last) {
            look_ahead(&ahead, input->raw2, clip + 1, conv->in * T);
            look_ahead(&ahead, input->raw, clip + 1, conv->in * T);
        }
        activate(input, clip, conv->in, T, x);
        if (conv2)
            pointwise(conv2, clip, T, x, raw2, sums2, &ahead);
        if (conv->kernel > 1)
            depthwise(conv, 0, T, x, u);
        pointwise(conv, clip, T, conv->kernel > 1 ? u : x, raw, sums, &ahead);
    }
    free(x.memory);
    free(u.memory);
    return failed;
}

/* The gradients of stage_forward. d_input, the masked gradient of the activation, and input_sums, double [3][in], are
 * NULL where the input is no activation. d_taps, d_w and d_w2 are in the layouts of taps and forward weights, zero at
 * the start. Returns 0, or 1 without memory. */
int stage_backward(int64_t first, int64_t last, int64_t T, const Activation *input, const Convolution *conv,
                   const NormGradient *output, float *d_taps, float *d_w, const Convolution *conv2,
                   const NormGradient *output2, float *d_w2, float *d_input, double *input_sums)
{
    Tile x = {0}, u = {0}, dy = {0}, du = {0};
    int64_t widest = conv->in > conv->out ? conv->in : conv->out;
    int failed = !tile_create(&x, conv->in, T, halo(conv)) || !tile_create(&u, conv->in, T, 0) ||
                 !tile_create(&dy, widest, T, 0) || !tile_create(&du, conv->in, T, halo(conv));
    for (int64_t clip = first; clip < last && !failed; clip++) {
        Tile dx = du;
        Ahead ahead = {0};
        if (clip + 1 < last) {
            if (conv2)
                look_ahead(&ahead, output2->raw, clip + 1, conv->out * T);
            look_ahead(&ahead, output->raw, clip + 1, conv->out * T);
            look_ahead(&ahead, output->grad, clip + 1, conv->out * T);
            look_ahead(&ahead, input->raw2, clip + 1, conv->in * T);
            look_ahead(&ahead, input->raw, clip + 1, conv->in * T);
        }
        activate(input, clip, conv->in, T, x);
        norm_gradient(output, clip, conv->out, T, dy);
        if (conv->kernel > 1) {
            depthwise(conv, 0, T, x, u);
            pointwise_weight(conv, T, u, dy, d_w, &ahead);
            pointwise_input(conv, 0, T, dy, du, &ahead);
            depthwise_taps(conv, T, x, du, d_taps);
            if (d_input)
                depthwise(conv, 1, T, du, u);
            dx = u;
        } else {
            pointwise_weight(conv, T, x, dy, d_w, &ahead);
            if (d_input)
                pointwise_input(conv, 0, T, dy, dx, &ahead);
        }
        if (conv2) {
            norm_gradient(output2, clip, conv2->out, T, dy);
            pointwise_weight(conv2, T, x, dy, d_w2, &ahead);
            if (d_input)
                pointwise_input(conv2, 1, T, dy, dx, &ahead);
        }
        if (d_input)
            masked_gradient(input, clip, conv->in, T, x, dx.data, dx.stride, LANES, 0, T, d_input, input_sums);
    }
    free(x.memory);
    free(u.memory);
    free(dy.memory);
    free(du.memory);
    return failed;
}

/* pooled [B][windows][channels]: the activation's means over windows that begin `step` frames apart and together cover
 * all but `edge` frames at each end. Returns 0, or 1 without memory. */
int pool_forward(int64_t first, int64_t last, int64_t T, int64_t channels, int64_t edge, int64_t windows, int64_t step,
                 const Activation *input, float *pooled)
{
    Tile x = {0};
    int64_t frames = T - 2 * edge - (windows - 1) * step;
    int failed = !tile_create(&x, channels, T, 0);
    for (int64_t clip = first; clip < last && !failed; clip++) {
        activate(input, clip, channels, T, x);
        for (int64_t w = 0; w < windows; w++)
            for (int64_t c = 0; c < channels; c += 8) {
                const float *h = x.data + c / LANES * x.stride + (edge + w * step) * LANES + (c & 8);
                v8 sum = {0};
                for (int64_t t = 0; t < frames; t++)
                    sum += load(h + t * LANES);
                store(pooled + (clip * windows + w) * channels + c, sum / (float)frames);
            }
    }
    free(x.memory);
    return failed;
}

/* The gradient of pool_forward: d_pooled [B][windows][channels] is already divided by a window's number of frames.
 * Returns 0, or 1 without memory. */
int pool_backward(int64_t first, int64_t last, int64_t T, int64_t channels, int64_t edge, int64_t windows, int64_t step,
                  const Activation *input, const float *d_pooled, float *d_input, double *input_sums)
{
    Tile x = {0}, d = {0};
    int64_t frames = T - 2 * edge - (windows - 1) * step;
    int failed = !tile_create(&x, channels, T, 0) || !tile_create(&d, channels, T, 0);
    for (int64_t clip = first; clip < last && !failed; clip++) {
        activate(input, clip, channels, T, x);
        memset(d.data, 0, channels / LANES * d.stride * sizeof *d.data);
        for (int64_t w = 0; w < windows; w++)
            for (int64_t c = 0; c < channels; c += 8) {
                v8 each = load(d_pooled + (clip * windows + w) * channels + c);
                float *sum = d.data + c / LANES * d.stride + (edge + w * step) * LANES + (c & 8);
                for (int64_t t = 0; t < frames; t++)
                    store(sum + t * LANES, load(sum + t * LANES) + each);
            }
        masked_gradient(input, clip, channels, T, x, d.data + edge * LANES, d.stride, LANES, edge, T - edge, d_input,
                        input_sums);
    }
    free(d.memory);
    free(x.memory);
    return failed;
}

/* [B][channels][T] to panels. */
int to_panels(int64_t first, int64_t last, int64_t T, int64_t channels, const float *x, float *y)
{
    for (int64_t row = first * channels / LANES; row < last * channels / LANES; row++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t c = 0; c < LANES; c++)
                y[(row * T + t) * LANES + c] = x[(row * LANES + c) * T + t];
    return 0;
}
