/* Softmax regression on the built-in digits, as a worker of a Tessera job: deploy/jobs/digits_linear.yaml.
 *
 *     cc -std=c11 -O2 digits.c $(pkg-config --cflags --libs tessera_client) -lz -lm -o digits
 *     ./digits JOB.yaml DATA_FOLDER [COORDINATOR]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include <tessera_client.h>

enum { kInputs = 64, kClasses = 10, kTrainRows = 1347, kTestRows = 450 };

static float weight[kClasses * kInputs], bias[kClasses];            /* the model */
static float weight_grad[kClasses * kInputs], bias_grad[kClasses];  /* means over a minibatch */
static unsigned char train_x[kTrainRows * kInputs], train_y[kTrainRows];
static unsigned char test_x[kTestRows * kInputs], test_y[kTestRows];

static void check(tessera_status status) {
  if (status == TESSERA_OK) return;
  fprintf(stderr, "digits: %s\n", tessera_last_message());
  exit(1);
}

/* Reads the bytes behind the header of an idx file. */
static void read_idx(const char* folder, const char* name, int header, unsigned char* to, int size) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  gzFile file = gzopen(path, "rb");
  if (file == NULL || gzseek(file, header, SEEK_CUR) != header || gzread(file, to, (unsigned)size) != size) {
    fprintf(stderr, "digits: cannot read %s\n", path);
    exit(1);
  }
  gzclose(file);
}

/* The probabilities of the classes of one row, whose values are 0 to 16; returns the loss. */
static double predict(const unsigned char* x, int label, double* probability) {
  double most = -INFINITY, sum = 0;
  for (int c = 0; c < kClasses; ++c) {
    double z = bias[c];
    for (int i = 0; i < kInputs; ++i) z += weight[c * kInputs + i] * (x[i] / 16.0);
    probability[c] = z;
    most = fmax(most, z);
  }
  for (int c = 0; c < kClasses; ++c) sum += probability[c] = exp(probability[c] - most);
  for (int c = 0; c < kClasses; ++c) probability[c] /= sum;
  return -log(probability[label]);
}

/* Fills the gradients of a minibatch; returns its mean loss. */
static double learn(const uint32_t* rows, size_t count) {
  double loss = 0, p[kClasses];
  for (int i = 0; i < kClasses * kInputs; ++i) weight_grad[i] = 0;
  for (int c = 0; c < kClasses; ++c) bias_grad[c] = 0;
  for (size_t r = 0; r < count; ++r) {
    const unsigned char* x = train_x + rows[r] * kInputs;
    loss += predict(x, train_y[rows[r]], p) / (double)count;
    for (int c = 0; c < kClasses; ++c) {
      const float g = (float)((p[c] - (c == train_y[rows[r]])) / (double)count);
      bias_grad[c] += g;
      for (int i = 0; i < kInputs; ++i) weight_grad[c * kInputs + i] += g * x[i] / 16;
    }
  }
  return loss;
}

static tessera_scores score(void) {
  tessera_scores scores = {sizeof(scores), 0, 0, kTestRows};
  double p[kClasses];
  for (int r = 0; r < kTestRows; ++r) {
    scores.loss += predict(test_x + r * kInputs, test_y[r], p) / kTestRows;
    int first = 0;
    for (int c = 1; c < kClasses; ++c) first = p[c] > p[first] ? c : first;
    scores.score += (first == test_y[r]) / (double)kTestRows;
  }
  printf("test loss %.4f accuracy %.4f\n", scores.loss, scores.score);
  return scores;
}

int main(int argc, char** argv) {
  if (argc < 3) return fprintf(stderr, "usage: digits JOB.yaml DATA_FOLDER [COORDINATOR]\n"), 2;
  read_idx(argv[2], "train-images-idx3-ubyte.gz", 16, train_x, sizeof(train_x));
  read_idx(argv[2], "train-labels-idx1-ubyte.gz", 8, train_y, sizeof(train_y));
  read_idx(argv[2], "test-images-idx3-ubyte.gz", 16, test_x, sizeof(test_x));
  read_idx(argv[2], "test-labels-idx1-ubyte.gz", 8, test_y, sizeof(test_y));

  tessera_options options = {.struct_size = sizeof(options), .job_file = argv[1], .rank = -1, .description = "C"};
  options.coordinator = argc > 3 ? argv[3] : NULL;
  tessera_job* job;
  check(tessera_join(&options, &job));

  float* const values[] = {weight, bias};
  const float* const gradients[] = {weight_grad, bias_grad};
  tessera_verdict verdict = TESSERA_PULL;
  while (verdict != TESSERA_STOP) {
    tessera_minibatch_info minibatch = {.struct_size = sizeof(minibatch)};
    tessera_scores scores;
    switch (verdict) {
      case TESSERA_PULL:
        check(tessera_pull(job, values, 2, &verdict));
        break;
      case TESSERA_TRAIN:
        check(tessera_minibatch(job, &minibatch));
        check(tessera_step(job, minibatch.row_count, learn(minibatch.rows, minibatch.row_count), &verdict));
        break;
      case TESSERA_EXCHANGE:
        check(tessera_exchange(job, gradients, 2, values, 2, &verdict));
        break;
      case TESSERA_EVALUATE:
        scores = score();
        check(tessera_evaluate(job, &scores, &verdict));
        break;
      case TESSERA_SAVE: /* all of it is in the job's tensors */
        check(tessera_save_state(job, NULL, 0, &verdict));
        break;
      case TESSERA_STOP:
        break;
    }
  }
  check(tessera_close(job));
  return 0;
}
