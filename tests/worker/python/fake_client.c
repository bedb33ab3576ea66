/* The client library's interface with one worker and its servers in one process, for tests of the Python package.
 *
 * A job file has lines of words:
 *
 *   tensor NAME DIM...     a parameter; entry i of parameter p begins as p + 1 + i / 128
 *   state PARAMETER WHAT   an averaged state of a parameter, which begins at 0
 *   gradient RATE          gradients are pushed, and subtracted times RATE; without it changes are added
 *   steps N, local_steps N, rows N (of a minibatch), rate R (of the schedule)
 *   save_every N, evaluate_every N (exchanges), evaluate_first 1, evaluate_twice 1
 *   back_at N              step N is answered with a return to what was saved last, once
 *   lost_at N              step N finds this worker removed, once
 *   slow_join S, slow_exchange S    seconds
 *   refuse 1               joining fails
 *
 * What the servers have outlives a membership until fake_reset. fake_log names all calls.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/client/tessera_client.h"

#define TENSORS_MAX 4096
#define DIMS_MAX 8
#define API_NUMBER 2

typedef struct {
  char name[512];
  char state[32];
  int64_t dims[DIMS_MAX];
  int dim_count;
  int64_t size, parameter;
  float *values, *saved;
} Entry;

typedef struct {
  Entry entries[TENSORS_MAX];
  int64_t count, parameters, step, exchanges, saved_step, saved_exchanges, member;
  int is_there, was_back, was_lost;
  char* state;
  size_t state_size;
} Servers;

typedef struct {
  int64_t steps, local_steps, rows, save_every, evaluate_every, evaluate_first, evaluate_twice;
  int64_t back_at, lost_at, refuse, gradient;
  double rate, push_rate, slow_join, slow_exchange;
} Settings;

struct tessera_job {
  Settings settings;
  Entry* entries;
  tessera_verdict verdict;
  double timeout, until;
  volatile int leaves;
  int waits, is_lost, evaluated;
  tessera_verdict then;
  float** values;
  float** pulled;
  uint32_t rows[1024];
  pid_t process;
};

static Servers servers;
static __thread char message[512];
static char calls[1 << 16];
static int open_jobs;

static void Note(const char* format, ...) {
  size_t used = strlen(calls);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(calls + used, sizeof calls - used, format, arguments);
  va_end(arguments);
}

static tessera_status Fail(tessera_status status, const char* text) {
  snprintf(message, sizeof message, "%s", text);
  return status;
}

TESSERA_EXPORT void fake_reset(void) {
  for (int64_t i = 0; i < servers.count; ++i) {
    free(servers.entries[i].values);
    free(servers.entries[i].saved);
  }
  free(servers.state);
  memset(&servers, 0, sizeof servers);
  calls[0] = 0;
}
TESSERA_EXPORT const char* fake_log(void) { return calls; }
TESSERA_EXPORT int fake_open_jobs(void) { return open_jobs; }

const char* tessera_last_message(void) { return message; }
const char* tessera_version(void) { return "0.0.1"; }
int tessera_client_api(void) { return API_NUMBER; }

static double Now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static void AddTensor(char* words) {
  Entry* entry = &servers.entries[servers.count];
  snprintf(entry->name, sizeof entry->name, "%s", strtok(words, " "));
  entry->size = 1;
  for (char* word = strtok(NULL, " "); word != NULL; word = strtok(NULL, " ")) {
    entry->dims[entry->dim_count++] = atoll(word);
    entry->size *= atoll(word);
  }
  entry->parameter = servers.parameters++;
  entry->values = malloc(sizeof(float) * (entry->size + 1));
  for (int64_t i = 0; i < entry->size; ++i) entry->values[i] = entry->parameter + 1 + i / 128.0f;
  ++servers.count;
}

static void AddState(char* words) {
  Entry* entry = &servers.entries[servers.count++];
  const int64_t parameter = atoll(strtok(words, " "));
  *entry = servers.entries[parameter];
  strncpy(entry->state, strtok(NULL, " "), sizeof entry->state - 1);
  strcat(strcat(entry->name, "."), entry->state);
  entry->values = calloc(entry->size + 1, sizeof(float));
}

static int ReadJob(const char* path, Settings* settings) {
  const int is_new = !servers.is_there;
  char line[400], *rest;
  FILE* file = fopen(path, "r");
  if (file == NULL) return 0;
  memset(settings, 0, sizeof *settings);
  settings->steps = 4;
  settings->local_steps = settings->rate = 1;
  while (fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = 0;
    rest = strchr(line, ' ');
    if (rest == NULL) continue;
    *rest++ = 0;
    if (!strcmp(line, "tensor")) {
      if (is_new) AddTensor(rest);
      continue;
    }
    if (!strcmp(line, "state")) {
      if (is_new) AddState(rest);
      continue;
    }
    const double number = atof(rest);
    if (!strcmp(line, "gradient")) {
      settings->gradient = 1;
      settings->push_rate = number;
    }
    if (!strcmp(line, "steps")) settings->steps = number;
    if (!strcmp(line, "local_steps")) settings->local_steps = number;
    if (!strcmp(line, "rows")) settings->rows = number;
    if (!strcmp(line, "rate")) settings->rate = number;
    if (!strcmp(line, "save_every")) settings->save_every = number;
    if (!strcmp(line, "evaluate_every")) settings->evaluate_every = number;
    if (!strcmp(line, "evaluate_first")) settings->evaluate_first = number;
    if (!strcmp(line, "evaluate_twice")) settings->evaluate_twice = number;
    if (!strcmp(line, "back_at")) settings->back_at = number;
    if (!strcmp(line, "lost_at")) settings->lost_at = number;
    if (!strcmp(line, "refuse")) settings->refuse = number;
    if (!strcmp(line, "slow_join")) settings->slow_join = number;
    if (!strcmp(line, "slow_exchange")) settings->slow_exchange = number;
  }
  fclose(file);
  servers.is_there = 1;
  return 1;
}

/* Waits for its timeout, or until `until`; the verdict is then `then`. */
static tessera_status Wait(tessera_job* job, tessera_verdict* verdict) {
  const double end = Now() + (job->timeout > 0 ? job->timeout : 1e9);
  job->waits = 1;
  while (!job->leaves && Now() < job->until) {
    if (Now() >= end) return Fail(TESSERA_DEADLINE_EXCEEDED, "waits for worker 1");
    usleep(1000);
  }
  job->waits = 0;
  *verdict = job->verdict = job->leaves ? TESSERA_STOP : job->then;
  return TESSERA_OK;
}

static int Check(tessera_job* job, tessera_verdict verdict, tessera_status* status) {
  *status = TESSERA_OK;
  if (job->process != getpid())
    *status = Fail(TESSERA_FAILED_PRECONDITION, "forked");
  else if (job->is_lost)
    *status = Fail(TESSERA_FAILED_PRECONDITION, "this worker was removed; join again");
  else if (job->waits)
    *status = Fail(TESSERA_FAILED_PRECONDITION, "a call is in progress");
  else if (job->verdict != verdict)
    *status = Fail(TESSERA_FAILED_PRECONDITION, "out of order");
  return *status == TESSERA_OK;
}

tessera_status tessera_join(const tessera_options* options, tessera_job** out) {
  tessera_verdict verdict;
  tessera_job* job = calloc(1, sizeof *job);
  *out = NULL;
  Note("join %lld %s %s;", (long long)options->rank,
       options->coordinator ? options->coordinator : "-", options->description);
  for (size_t i = 0; i < options->override_count; ++i) Note("set %s;", options->overrides[i]);
  if (!ReadJob(options->job_file, &job->settings)) {
    free(job);
    return Fail(TESSERA_INVALID_ARGUMENT, "job file: cannot be read");
  }
  if (job->settings.refuse) {
    free(job);
    return Fail(TESSERA_UNAVAILABLE, "server 0 at 127.0.0.1:1 does not answer");
  }
  ++servers.member;
  ++open_jobs;
  job->process = getpid();
  job->entries = servers.entries;
  job->timeout = options->timeout_seconds;
  job->then = TESSERA_PULL;
  job->until = Now() + job->settings.slow_join;
  job->pulled = calloc(servers.count, sizeof(float*));
  for (int64_t i = 0; i < servers.count; ++i)
    job->pulled[i] = malloc(sizeof(float) * (job->entries[i].size + 1));
  *out = job;
  return Wait(job, &verdict);
}

tessera_status tessera_get_info(tessera_job* job, tessera_info* info) {
  info->rank = 0;
  info->workers = 1;
  info->member = servers.member;
  info->seed = 7;
  info->batch_size = job->settings.rows;
  info->steps = job->settings.steps;
  info->epochs = 0;
  info->local_steps = job->settings.local_steps;
  info->tensor_count = servers.count;
  info->parameter_count = servers.parameters;
  info->pushes_gradient = job->settings.gradient;
  info->has_rows = job->settings.rows > 0;
  info->keeps_state = job->settings.save_every > 0;
  info->overlaps = 0;
  info->has_subnets = info->group_count = 0;
  return info->struct_size == sizeof *info ? TESSERA_OK
                                           : Fail(TESSERA_INVALID_ARGUMENT, "struct_size");
}

tessera_status tessera_tensor_at(tessera_job* job, int64_t index, tessera_tensor* tensor) {
  const Entry* entry = &job->entries[index];
  tensor->name = entry->name;
  tensor->kind = entry->state[0] ? TESSERA_OPTIMIZER_STATE : TESSERA_PARAMETER;
  tensor->dim_count = entry->dim_count;
  tensor->dims = entry->dims;
  tensor->size = entry->size;
  tensor->parameter = entry->parameter;
  tensor->state = entry->state;
  return tensor->struct_size == sizeof *tensor ? TESSERA_OK
                                               : Fail(TESSERA_INVALID_ARGUMENT, "struct_size");
}

static tessera_status NoSubnets(void) {
  return Fail(TESSERA_FAILED_PRECONDITION, "the job has no subnets");
}

tessera_status tessera_group_at(tessera_job* job, int64_t index, tessera_group* group) {
  return NoSubnets();
}

tessera_status tessera_get_round(tessera_job* job, tessera_round* round) { return NoSubnets(); }

tessera_status tessera_tensor_now(tessera_job* job, int64_t index, tessera_tensor* tensor) {
  return NoSubnets();
}

tessera_status tessera_subnet(tessera_job* job, const char* group, const uint32_t** indices,
                              size_t* count) {
  return NoSubnets();
}

tessera_status tessera_set_timeout(tessera_job* job, double seconds) {
  job->timeout = seconds;
  return TESSERA_OK;
}

tessera_status tessera_wait(tessera_job* job, tessera_verdict* verdict) {
  if (!job->waits) return Fail(TESSERA_FAILED_PRECONDITION, "no call is in progress");
  return Wait(job, verdict);
}

static void Give(tessera_job* job, float* const* values) {
  for (int64_t i = 0; i < servers.count; ++i) {
    memcpy(values[i], job->entries[i].values, sizeof(float) * job->entries[i].size);
    memcpy(job->pulled[i], values[i], sizeof(float) * job->entries[i].size);
  }
}

tessera_status tessera_pull(tessera_job* job, float* const* values, size_t count,
                            tessera_verdict* verdict) {
  tessera_status status;
  Note("pull;");
  if (!Check(job, TESSERA_PULL, &status)) return status;
  if ((int64_t)count != servers.count) return Fail(TESSERA_INVALID_ARGUMENT, "pull: count");
  Give(job, values);
  job->then = job->settings.evaluate_first && servers.step == 0 ? TESSERA_EVALUATE : TESSERA_TRAIN;
  return Wait(job, verdict);
}

tessera_status tessera_minibatch(tessera_job* job, tessera_minibatch_info* minibatch) {
  tessera_status status;
  const Settings* settings = &job->settings;
  if (!Check(job, TESSERA_TRAIN, &status)) return status;
  if (minibatch->struct_size != sizeof *minibatch)
    return Fail(TESSERA_INVALID_ARGUMENT, "struct_size");
  for (int64_t i = 0; i < settings->rows; ++i) job->rows[i] = servers.step * settings->rows + i;
  minibatch->step = servers.step;
  minibatch->epoch = servers.step / 10;
  minibatch->rate = settings->rate;
  minibatch->last =
      (servers.step + 1) % settings->local_steps == 0 || servers.step + 1 == settings->steps;
  minibatch->rows = settings->rows > 0 ? job->rows : NULL;
  minibatch->row_count = settings->rows;
  return TESSERA_OK;
}

tessera_status tessera_step(tessera_job* job, uint64_t examples, double loss,
                            tessera_verdict* verdict) {
  tessera_status status;
  const Settings* settings = &job->settings;
  Note("step %llu %g;", (unsigned long long)examples, loss);
  if (!Check(job, TESSERA_TRAIN, &status)) return status;
  ++servers.step;
  if (servers.step == settings->lost_at && !servers.was_lost) {
    servers.was_lost = job->is_lost = 1;
    return Fail(TESSERA_FAILED_PRECONDITION, "this worker was removed; join again");
  }
  if (servers.step == settings->back_at && !servers.was_back) {
    servers.was_back = 1;
    servers.step = servers.saved_step;
    servers.exchanges = servers.saved_exchanges;
    for (int64_t i = 0; i < servers.count; ++i) {
      if (job->entries[i].saved != NULL) {
        memcpy(job->entries[i].values, job->entries[i].saved, sizeof(float) * job->entries[i].size);
      }
    }
    job->then = TESSERA_PULL;
  } else {
    const int exchanges =
        servers.step % settings->local_steps == 0 || servers.step == settings->steps;
    job->then = exchanges ? TESSERA_EXCHANGE : TESSERA_TRAIN;
  }
  return Wait(job, verdict);
}

static void AfterExchange(tessera_job* job, int saved) {
  const Settings* settings = &job->settings;
  const int is_last = servers.step == settings->steps;
  if (settings->save_every && servers.exchanges % settings->save_every == 0 && !saved) {
    job->then = TESSERA_SAVE;
  } else if (is_last ||
             (settings->evaluate_every && servers.exchanges % settings->evaluate_every == 0)) {
    job->then = TESSERA_EVALUATE;
  } else {
    job->then = TESSERA_TRAIN;
  }
}

tessera_status tessera_exchange(tessera_job* job, const float* const* gradients,
                                size_t gradient_count, float* const* values, size_t count,
                                tessera_verdict* verdict) {
  tessera_status status;
  const Settings* settings = &job->settings;
  Note("exchange;");
  if (!Check(job, TESSERA_EXCHANGE, &status)) return status;
  if ((int64_t)count != servers.count) return Fail(TESSERA_INVALID_ARGUMENT, "exchange: count");
  if ((gradients != NULL) != settings->gradient)
    return Fail(TESSERA_INVALID_ARGUMENT, "exchange: gradients");
  if (gradients != NULL && (int64_t)gradient_count != servers.parameters) {
    return Fail(TESSERA_INVALID_ARGUMENT, "exchange: gradient_count");
  }
  for (int64_t i = 0; i < servers.count; ++i) {
    Entry* entry = &job->entries[i];
    for (int64_t j = 0; j < entry->size; ++j) {
      if (gradients == NULL)
        entry->values[j] += values[i][j] - job->pulled[i][j];
      else if (i < servers.parameters)
        entry->values[j] -= (float)settings->push_rate * gradients[i][j];
    }
  }
  Give(job, values);
  ++servers.exchanges;
  AfterExchange(job, 0);
  job->until = Now() + settings->slow_exchange;
  return Wait(job, verdict);
}

tessera_status tessera_evaluate(tessera_job* job, const tessera_scores* scores,
                                tessera_verdict* verdict) {
  tessera_status status;
  Note("evaluate %g %g %llu;", scores->score, scores->loss, (unsigned long long)scores->rows);
  if (!Check(job, TESSERA_EVALUATE, &status)) return status;
  job->then = servers.step == job->settings.steps ? TESSERA_STOP : TESSERA_TRAIN;
  if (job->settings.evaluate_twice && !job->evaluated++) job->then = TESSERA_EVALUATE;
  return Wait(job, verdict);
}

tessera_status tessera_save_state(tessera_job* job, const void* bytes, size_t size,
                                  tessera_verdict* verdict) {
  tessera_status status;
  Note("save;");
  if (!Check(job, TESSERA_SAVE, &status)) return status;
  free(servers.state);
  servers.state = malloc(size + 1);
  memcpy(servers.state, bytes, size);
  servers.state_size = size;
  servers.saved_step = servers.step;
  servers.saved_exchanges = servers.exchanges;
  for (int64_t i = 0; i < servers.count; ++i) {
    Entry* entry = &job->entries[i];
    free(entry->saved);
    entry->saved = malloc(sizeof(float) * (entry->size + 1));
    memcpy(entry->saved, entry->values, sizeof(float) * entry->size);
  }
  AfterExchange(job, 1);
  return Wait(job, verdict);
}

tessera_status tessera_load_state(tessera_job* job, const void** bytes, size_t* size) {
  if (job->is_lost) return Fail(TESSERA_FAILED_PRECONDITION, "this worker was removed; join again");
  *bytes = servers.state;
  *size = servers.state_size;
  return TESSERA_OK;
}

tessera_status tessera_leave(tessera_job* job) {
  job->leaves = 1;
  return TESSERA_OK;
}

tessera_status tessera_close(tessera_job* job) {
  if (job == NULL) return TESSERA_OK;
  Note("close;");
  --open_jobs;
  for (int64_t i = 0; i < servers.count; ++i) free(job->pulled[i]);
  free(job->pulled);
  const int is_lost = job->is_lost;
  free(job);
  return is_lost ? Fail(TESSERA_FAILED_PRECONDITION, "this worker was removed; join again")
                 : TESSERA_OK;
}
