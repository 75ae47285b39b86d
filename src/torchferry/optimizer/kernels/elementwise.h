/* What every library of element-wise kernels begins with: the part of onnxruntime's C interface
 * that they use, functions that a compiler can vectorize, and the walk over broadcast inputs.
 *
 * onnxruntime's Python package has no headers. Its interface is a table of function pointers whose
 * order never changes (onnxruntime_c_api.h: entries are only added at the end), and a structure
 * that says which version it was written for: 18, the first with outputs in the memory of inputs.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 18
#define MOST_AXES 8
#define MOST_INPUTS 16
#define PIECE 8192 /* elements between two looks at where a row ends */
#define SHORT 256  /* the same, where an input has to be spread out first */
#define GRAIN 40000.0 /* of work, in additions, that are worth another thread */

typedef void Status; /* NULL when all is well */
typedef struct { const void *entry[512]; } Api;
typedef struct { const Api *(*get)(uint32_t); const char *(*version)(void); } ApiBase;

/* The entries, by their place in the table. */
enum {
  CREATE_STATUS = 0, CREATE_DOMAIN = 26, DOMAIN_ADD = 27, ADD_DOMAIN = 28, MUTABLE_DATA = 51,
  AXES_COUNT = 61, AXES = 62, TYPE_AND_SHAPE = 65, INPUT = 90, OUTPUT = 91,
  RELEASE_TYPE_AND_SHAPE = 99, PARALLEL_FOR = 274
};
#define CALL(place, ...) ((Status * (*)(__VA_ARGS__)) api->entry[place])

/* OrtCustomOp; what is not used has no type. */
typedef struct Op {
  uint32_t version;
  void *(*create)(const struct Op *, const Api *, const void *);
  const char *(*name)(const struct Op *);
  const char *(*provider)(const struct Op *);
  int (*input_type)(const struct Op *, size_t);
  size_t (*input_count)(const struct Op *);
  int (*output_type)(const struct Op *, size_t);
  size_t (*output_count)(const struct Op *);
  void (*compute)(void *, void *);
  void (*destroy)(void *);
  int (*input_kind)(const struct Op *, size_t);
  int (*output_kind)(const struct Op *, size_t);
  int (*input_memory)(const struct Op *, size_t);
  int (*variadic[4])(const struct Op *);
  void *create_v2;
  Status *(*compute_v2)(void *, void *);
  void *infer_shape;
  int (*start_version)(const struct Op *);
  int (*end_version)(const struct Op *);
  size_t (*in_place)(int **, int **);
  void (*release_in_place)(int *, int *);
  void *alias_map, *release_alias_map;
} Op;

typedef struct {
  Op op; /* first: onnxruntime hands back where it stands */
  const char *called;
  int inputs;
  const unsigned char *types;  /* ONNX element types, the output's last */
  const unsigned char *vector; /* whether an input is expected to have an element a step */
  double cost;                 /* of an element, in additions */
  void (*body)(const char *const *in, char *out, size_t count);
} Kernel;

/* Functions -------------------------------------------------------------------------------------
 *
 * Polynomials are least squares of the relative error at Chebyshev points, reweighted to be even;
 * each is good to 3e-8. They have no branches, so that loops around them are vectorized.
 */
static inline float bits_float(int32_t i) { float f; memcpy(&f, &i, 4); return f; }

static inline float exp_parts(float x, float *k) { /* exp(x) is the result times 2^k */
  *k = __builtin_rintf(x * 1.44269504f);
  float r = x - *k * 0.693359375f; /* log(2) in two parts; the first has few bits */
  r = r + *k * 2.12194440e-4f;
  float p = 0.00138367247f;
  p = p * r + 0.00837489869f;
  p = p * r + 0.0416682325f;
  p = p * r + 0.166664198f;
  p = p * r + 0.499999911f;
  p = p * r + 1.0f;
  return p * r + 1.0f;
}

static inline float exp_float(float x) {
  float k, c = x < -104.0f ? -104.0f : x; /* NaN stays NaN */
  float p = exp_parts(c > 89.0f ? 89.0f : c, &k);
  int32_t i = (int32_t)k, half = i >> 1; /* 2^k in two factors: it may be subnormal */
  return p * bits_float((half + 127) * 8388608) * bits_float((i - half + 127) * 8388608);
}

/* exp, but no less than 1e-38, and infinite from 2.4e38 on: where one is added to it. */
static inline float exp_near(float x) {
  float k, c = x < -87.0f ? -87.0f : x;
  float p = exp_parts(c > 89.0f ? 89.0f : c, &k);
  return p * bits_float(((int32_t)k + 127) * 8388608);
}

static inline float sigmoid_float(float x) { return 1.0f / (1.0f + exp_near(-x)); }

static inline float tanh_float(float x) {
  float a = __builtin_fabsf(x), z = x * x;
  float large = 1.0f - 2.0f / (exp_near(2.0f * a) + 1.0f);
  float p = 0.00212850189f;
  p = p * z + -0.0081591066f;
  p = p * z + 0.0216918178f;
  p = p * z + -0.0539446957f;
  p = p * z + 0.133331835f;
  p = p * z + -0.333333284f;
  return a < 0.625f ? x + x * z * p : __builtin_copysignf(large, x);
}

static inline float erf_float(float x) {
  float a = __builtin_fabsf(x), z = x * x;
  float t = a > 4.0f ? 4.0f : a; /* erf is 1 from there on */
  float q = -8.11580094e-07f;    /* -log(1 - erf(t)) / t */
  q = q * t + 3.04124151e-05f;
  q = q * t + -0.000470924802f;
  q = q * t + 0.00419916492f;
  q = q * t + -0.024913989f;
  q = q * t + 0.10757713f;
  q = q * t + 0.634330034f;
  q = q * t + 1.12885451f;
  float large = 1.0f - exp_near(-q * t);
  float p = 7.85384618e-05f;
  p = p * z + -0.000801018905f;
  p = p * z + 0.00518832728f;
  p = p * z + -0.026853811f;
  p = p * z + 0.112835854f;
  p = p * z + -0.37612626f;
  p = p * z + 1.12837911f;
  return a < 0.97f ? x * p : __builtin_copysignf(large, x);
}

static inline float hard_sigmoid(float x, float alpha, float beta) {
  float y = alpha * x + beta;
  y = y < 0.0f ? 0.0f : y;
  return y > 1.0f ? 1.0f : y;
}

static inline float gelu_float(float x) {
  return 0.5f * x * (1.0f + erf_float(x * 0.707106781f));
}

static inline float gelu_tanh_float(float x) { /* (1 + tanh(u)) / 2 is sigmoid(2 u) */
  return x * sigmoid_float(1.59576912f * (x + 0.044715f * x * x * x));
}

/* The walk --------------------------------------------------------------------------------------
 *
 * Axes that every input steps through alike become one. The innermost is given to the kernel in
 * pieces; an input has a step of one element there, or of none.
 */
typedef struct {
  const Kernel *kernel;
  int axes; /* outer ones */
  int64_t size[MOST_AXES], inner, pieces, piece, units;
  int64_t step[MOST_INPUTS][MOST_AXES]; /* in bytes */
  unsigned char spread[MOST_INPUTS];    /* one element stands where the kernel wants many */
  int moves[MOST_INPUTS];               /* bytes to the next element of the inner axis */
  int width[MOST_INPUTS + 1];
  const char *in[MOST_INPUTS];
  char *out;
  int64_t tasks;
} Walk;

static int width_of(int type) {
  switch (type) {
    case 9: case 2: case 3: return 1;
    case 7: case 11: return 8;
    default: return 4;
  }
}

static void fill(char *to, const char *from, int width, int64_t count) {
  for (int64_t i = 0; i < count; i++) memcpy(to + i * width, from, width);
}

static void units(Walk *walk, int64_t first, int64_t last) {
  const Kernel *kernel = walk->kernel;
  int64_t place[MOST_AXES] = {0}, row = first / walk->pieces, number = first % walk->pieces;
  const char *start[MOST_INPUTS], *in[MOST_INPUTS];
  char wide[MOST_INPUTS][SHORT * 8];
  for (int axis = walk->axes - 1; axis >= 0; axis--) {
    place[axis] = row % walk->size[axis];
    row /= walk->size[axis];
  }
  row = first / walk->pieces;
  for (int i = 0; i < kernel->inputs; i++) {
    start[i] = walk->in[i];
    for (int axis = 0; axis < walk->axes; axis++) start[i] += place[axis] * walk->step[i][axis];
  }
  for (int64_t unit = first; unit < last; unit++) {
    int64_t from = number * walk->piece, left = walk->inner - from;
    int64_t count = left < walk->piece ? left : walk->piece;
    for (int i = 0; i < kernel->inputs; i++) {
      in[i] = start[i] + from * walk->moves[i];
      if (walk->spread[i]) {
        fill(wide[i], in[i], walk->width[i], count);
        in[i] = wide[i];
      }
    }
    int64_t offset = row * walk->inner + from;
    kernel->body(in, walk->out + offset * walk->width[kernel->inputs], (size_t)count);
    if (++number < walk->pieces) continue;
    number = 0;
    row++;
    for (int axis = walk->axes - 1; axis >= 0; axis--) {
      for (int i = 0; i < kernel->inputs; i++) start[i] += walk->step[i][axis];
      if (++place[axis] < walk->size[axis]) break;
      place[axis] = 0;
      for (int i = 0; i < kernel->inputs; i++)
        start[i] -= walk->step[i][axis] * walk->size[axis];
    }
  }
}

static void task(void *data, size_t number) {
  Walk *walk = data;
  int64_t n = (int64_t)number;
  units(walk, walk->units * n / walk->tasks, walk->units * (n + 1) / walk->tasks);
}

/* Sizes of the output from the right; 0 when two inputs do not fit. */
static int broadcast(int inputs, const int64_t (*dims)[MOST_AXES], int64_t *out) {
  for (int axis = 0; axis < MOST_AXES; axis++) {
    out[axis] = 1;
    for (int i = 0; i < inputs; i++) {
      int64_t size = dims[i][axis];
      if (size == 1) continue;
      if (out[axis] != 1 && out[axis] != size) return 0;
      out[axis] = size;
    }
  }
  return 1;
}

/* Join axes, choose pieces. Sizes are given from the right. */
static void plan(Walk *walk, const int64_t (*dims)[MOST_AXES], const int64_t *out) {
  const Kernel *kernel = walk->kernel;
  int64_t size[MOST_AXES + 1], step[MOST_AXES + 1][MOST_INPUTS], next[MOST_INPUTS];
  int used = 0; /* joined axes, the innermost first; steps in elements */
  for (int i = 0; i < kernel->inputs; i++) next[i] = 1;
  for (int axis = 0; axis < MOST_AXES; axis++) {
    int64_t here[MOST_INPUTS];
    for (int i = 0; i < kernel->inputs; i++) {
      here[i] = dims[i][axis] == 1 ? 0 : next[i];
      next[i] *= dims[i][axis];
    }
    if (out[axis] == 1) continue;
    int joins = used > 0;
    for (int i = 0; joins && i < kernel->inputs; i++)
      joins = here[i] == step[used - 1][i] * size[used - 1];
    if (joins) {
      size[used - 1] *= out[axis];
      continue;
    }
    memcpy(step[used], here, sizeof here);
    size[used++] = out[axis];
  }
  if (used == 0) {
    size[used] = 1;
    memset(step[used++], 0, sizeof step[0]);
  }
  walk->axes = used - 1;
  walk->inner = size[0];
  walk->piece = PIECE;
  int64_t rows = 1;
  for (int axis = 0; axis < walk->axes; axis++) {
    walk->size[axis] = size[used - 1 - axis];
    rows *= walk->size[axis];
  }
  for (int i = 0; i < kernel->inputs; i++) {
    int width = walk->width[i];
    for (int axis = 0; axis < walk->axes; axis++)
      walk->step[i][axis] = step[used - 1 - axis][i] * width;
    walk->moves[i] = (int)step[0][i] * width;
    walk->spread[i] = kernel->vector[i] && step[0][i] == 0 && walk->inner > 1;
    if (walk->spread[i] && walk->piece > SHORT) walk->piece = SHORT;
    if (!kernel->vector[i] && step[0][i] != 0) walk->piece = 1;
  }
  walk->pieces = (walk->inner + walk->piece - 1) / walk->piece;
  walk->units = rows * walk->pieces;
}

static Status *shape_of(const Api *api, const void *value, int64_t *dims, size_t *rank) {
  void *info;
  int64_t given[MOST_AXES];
  Status *status = CALL(TYPE_AND_SHAPE, const void *, void **)(value, &info);
  if (status) return status;
  status = CALL(AXES_COUNT, const void *, size_t *)(info, rank);
  if (!status && *rank > MOST_AXES)
    status = CALL(CREATE_STATUS, int, const char *)(2, "an input has more than 8 axes");
  if (!status) status = CALL(AXES, const void *, int64_t *, size_t)(info, given, *rank);
  ((void (*)(void *))api->entry[RELEASE_TYPE_AND_SHAPE])(info);
  if (status) return status;
  for (size_t axis = 0; axis < MOST_AXES; axis++)
    dims[axis] = axis < *rank ? given[*rank - 1 - axis] : 1;
  return NULL;
}

typedef struct { const Kernel *kernel; const Api *api; } State;

static Status *compute(void *data, void *context) {
  const Kernel *kernel = ((State *)data)->kernel;
  const Api *api = ((State *)data)->api;
  int64_t dims[MOST_INPUTS][MOST_AXES], out[MOST_AXES], shape[MOST_AXES];
  size_t most = 0, rank;
  Walk walk = {.kernel = kernel};
  Status *status;
  for (int i = 0; i < kernel->inputs; i++) {
    void *value;
    status = CALL(INPUT, const void *, size_t, void **)(context, (size_t)i, &value);
    if (status) return status;
    if ((status = shape_of(api, value, dims[i], &rank))) return status;
    status = CALL(MUTABLE_DATA, void *, void **)(value, (void **)&walk.in[i]);
    if (status) return status;
    most = rank > most ? rank : most;
    walk.width[i] = width_of(kernel->types[i]);
  }
  walk.width[kernel->inputs] = width_of(kernel->types[kernel->inputs]);
  if (!broadcast(kernel->inputs, dims, out))
    return CALL(CREATE_STATUS, int, const char *)(2, "the shapes of the inputs do not fit");
  int64_t total = 1;
  for (size_t axis = 0; axis < most; axis++) {
    shape[axis] = out[most - 1 - axis];
    total *= shape[axis];
  }
  void *made;
  status = CALL(OUTPUT, void *, size_t, const int64_t *, size_t, void **)(
      context, 0, shape, most, &made);
  if (status) return status;
  if ((status = CALL(MUTABLE_DATA, void *, void **)(made, (void **)&walk.out))) return status;
  if (total == 0) return NULL;
  plan(&walk, dims, out);
  double worth = (double)total * kernel->cost / GRAIN;
  walk.tasks = worth < 1 ? 1 : worth > 64 ? 64 : (int64_t)worth;
  if (walk.tasks > walk.units) walk.tasks = walk.units;
  if (walk.tasks == 1) {
    units(&walk, 0, walk.units);
    return NULL;
  }
  return CALL(PARALLEL_FOR, const void *, void (*)(void *, size_t), size_t, size_t, void *)(
      context, task, (size_t)walk.tasks, 0, &walk);
}

/* What onnxruntime asks of an operator ---------------------------------------------------------- */
static void *create(const Op *op, const Api *api, const void *info) {
  (void)info;
  State *state = malloc(sizeof *state);
  if (state) *state = (State){(const Kernel *)op, api};
  return state;
}
static void destroy(void *state) { free(state); }
static const char *name(const Op *op) { return ((const Kernel *)op)->called; }
static const char *provider(const Op *op) { (void)op; return NULL; /* the CPU's */ }
static size_t input_count(const Op *op) { return (size_t)((const Kernel *)op)->inputs; }
static size_t one(const Op *op) { (void)op; return 1; }
static int input_type(const Op *op, size_t i) { return ((const Kernel *)op)->types[i]; }
static int output_type(const Op *op, size_t i) { (void)i; return input_type(op, input_count(op)); }
static int required(const Op *op, size_t i) { (void)op; (void)i; return 0; }
static int first_version(const Op *op) { (void)op; return 1; }
static int any_version(const Op *op) { (void)op; return INT32_MAX; }
static void release_pairs(int *in, int *out) { free(in); free(out); }

/* The output may be computed in the memory of an input of its type. */
static size_t pairs(const unsigned char *types, int inputs, int **in, int **out) {
  size_t count = 0;
  *in = malloc(sizeof(int) * MOST_INPUTS);
  *out = malloc(sizeof(int) * MOST_INPUTS);
  if (!*in || !*out) return 0;
  for (int i = 0; i < inputs; i++)
    if (types[i] == types[inputs]) (*in)[count] = i, (*out)[count++] = 0;
  return count;
}

static Op described(size_t (*in_place)(int **, int **)) {
  return (Op){.version = VERSION, .create = create, .name = name, .provider = provider,
              .input_type = input_type, .input_count = input_count, .output_type = output_type,
              .output_count = one, .destroy = destroy, .input_kind = required,
              .output_kind = required, .input_memory = required, .compute_v2 = compute,
              .start_version = first_version, .end_version = any_version, .in_place = in_place,
              .release_in_place = release_pairs};
}

static Status *add_all(void *options, const Api *api, const char *domain, Op **ops, size_t count) {
  void *made;
  Status *status = CALL(CREATE_DOMAIN, const char *, void **)(domain, &made);
  for (size_t i = 0; !status && i < count; i++)
    status = CALL(DOMAIN_ADD, void *, const Op *)(made, ops[i]);
  return status ? status : CALL(ADD_DOMAIN, void *, void *)(options, made);
}
