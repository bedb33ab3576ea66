// Tessera's client library: a program with a model of its own takes part in a job as a worker.
//
// The library is the exchange of tessera-worker behind a C interface: it joins, renews the lease, pulls and pushes,
// codes, follows servers that move, and writes the worker's file of each checkpoint. The caller computes minibatches.
//
//     tessera_join                                  a member of the job; the verdict is TESSERA_PULL
//     tessera_pull(values)                          the servers' values are in the caller's memory
//     for each verdict
//       TESSERA_TRAIN     one minibatch, then tessera_step
//       TESSERA_EXCHANGE  tessera_exchange: what was learned goes to the servers, their values come
//       TESSERA_EVALUATE  score the values on test data, then tessera_evaluate
//       TESSERA_SAVE      tessera_save_state: what a checkpoint is to keep of this program
//       TESSERA_PULL      tessera_pull: the job went back to a checkpoint, and goes on from there; with subnets, the
//                         values of another cut have come
//       TESSERA_STOP      training is over
//     tessera_close
//
// Every call returns a status; what went wrong, and what to do, is in tessera_last_message. A call that the verdict
// did not ask for is TESSERA_FAILED_PRECONDITION and changes nothing. Calls of one job come from one thread at a time;
// tessera_leave may come from any. Nothing throws, and no signal handler is installed. A child made by fork has no job:
// its calls are TESSERA_FAILED_PRECONDITION.
//
// Memory: arrays given to tessera_pull and tessera_exchange stay the caller's. The library reads and writes them during
// its calls alone, and uses those of the last such call in tessera_step and tessera_evaluate too, so that they must
// stay valid, and at their place, until others are given or the job is closed. Values are 32-bit floats, each array
// dense in row-major order, in the order of tessera_tensor_at.
//
// Subnets (tessera_info's has_subnets): each round gives this worker some of the units of each group, and its arrays
// are those of the network of these units alone, of other sizes in another round. After TESSERA_PULL tessera_tensor_now
// says how large arrays are to be, and tessera_subnet which units they are of.
//
//     tessera_exchange(values of this round)        the verdict is TESSERA_PULL
//     tessera_pull(values of the next round)        the verdict is TESSERA_TRAIN
//
// Where an evaluation is due TESSERA_PULL comes once more, and tessera_get_round says `evaluation`: the whole model
// comes, and TESSERA_EVALUATE behind it; a caller that gives no arrays then, NULL and 0, scores nothing. The round's
// arrays are not touched meanwhile, and training goes on with them. Where the job's last steps train the whole model
// there is a TESSERA_PULL for its arrays, and none later.
//
// Blocking calls wait for servers and other workers. With a timeout they return TESSERA_DEADLINE_EXCEEDED, with a
// message that says for whom they wait; the call is then still in progress, and tessera_wait goes on with it.
#ifndef TESSERA_WORKER_CLIENT_TESSERA_CLIENT_H_
#define TESSERA_WORKER_CLIENT_TESSERA_CLIENT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_CLIENT_API 2  // grows when a function or a field is added

#if defined(_WIN32)
#define TESSERA_EXPORT
#else
#define TESSERA_EXPORT __attribute__((visibility("default")))
#endif

typedef struct tessera_job tessera_job;

// The numbers are those of gRPC's status codes.
typedef enum tessera_status {
  TESSERA_OK = 0,
  TESSERA_CANCELLED = 1,  // tessera_leave ended it
  TESSERA_UNKNOWN = 2,
  TESSERA_INVALID_ARGUMENT = 3,   // an argument or the job file is wrong
  TESSERA_DEADLINE_EXCEEDED = 4,  // still in progress: tessera_wait
  TESSERA_NOT_FOUND = 5,
  TESSERA_PERMISSION_DENIED = 7,
  TESSERA_RESOURCE_EXHAUSTED = 8,  // memory, threads or files
  TESSERA_FAILED_PRECONDITION =
      9,  // not now, or no member any more: the message says why; join again
  TESSERA_ABORTED = 10,
  TESSERA_UNIMPLEMENTED = 12,  // the job's method is not for callers' models
  TESSERA_INTERNAL = 13,
  TESSERA_UNAVAILABLE = 14,  // servers cannot be reached
  TESSERA_UNAUTHENTICATED = 16
} tessera_status;

// What the job wants of its caller next.
typedef enum tessera_verdict {
  TESSERA_TRAIN = 0,
  TESSERA_EXCHANGE = 1,
  TESSERA_EVALUATE = 2,
  TESSERA_SAVE = 3,
  TESSERA_PULL = 4,
  TESSERA_STOP = 5
} tessera_verdict;

typedef struct tessera_options {
  size_t struct_size;            // sizeof(tessera_options)
  const char* job_file;          // path of the YAML job file
  const char* const* overrides;  // "a.b=value", as --set of tessera-worker; may be NULL
  size_t override_count;
  const char* coordinator;  // host:port of server 0; NULL: as the job file has it
  int64_t rank;             // the wanted place among the workers; -1: the lowest free one
  const char*
      description;         // of what computes, for status and report: "PyTorch 1.13.1"; may be NULL
  const char* log_level;   // debug, info, warning or error, of what goes to stderr; NULL: warning
  double timeout_seconds;  // of tessera_join; 0: none
} tessera_options;

// What is exchanged, in which manner. Constant while the handle lives, but for `member`.
typedef struct tessera_info {
  size_t struct_size;  // set by the caller: sizeof(tessera_info)
  int64_t rank;
  int64_t workers;          // cluster.workers
  uint64_t member;          // this membership's number
  uint64_t seed;            // the job's
  int64_t batch_size;       // train.batch_size; 0: the caller's business
  int64_t steps;            // train.steps; 0: train.epochs counts
  int64_t epochs;           // train.epochs; 0: train.steps counts
  int64_t local_steps;      // minibatches from one exchange to the next, at most
  int64_t tensor_count;     // of tessera_tensor_at
  int64_t parameter_count;  // those of the model; optimizer states come behind them
  int32_t
      pushes_gradient;  // 1: gradients are pushed, and the servers' optimizer steps; 0: the caller's does
  int32_t has_rows;  // 1: the job has data, and tessera_minibatch names the rows of each minibatch
  int32_t keeps_state;  // 1: checkpoints are kept, so that TESSERA_SAVE may be asked for
  int32_t overlaps;     // 1: an exchange goes on beside the next minibatches
  // From API 2 on.
  int32_t has_subnets;  // 1: each round gives this worker a part of the model
  int32_t group_count;  // of tessera_group_at
} tessera_info;

typedef enum tessera_tensor_kind {
  TESSERA_PARAMETER = 0,
  TESSERA_OPTIMIZER_STATE =
      1  // of the caller's optimizer, averaged beside the parameters; begins at 0
} tessera_tensor_kind;

typedef struct tessera_tensor {
  size_t struct_size;  // set by the caller: sizeof(tessera_tensor)
  const char* name;    // valid while the handle is
  int32_t kind;        // tessera_tensor_kind
  int32_t dim_count;
  const int64_t* dims;  // valid while the handle is
  int64_t size;         // floats
  int64_t parameter;    // of a state: the index of its parameter; of a parameter: its own
  const char* state;    // of a state, what it is: "momentum", "m", "v"; else ""
} tessera_tensor;

// The minibatch that TESSERA_TRAIN asks for.
typedef struct tessera_minibatch_info {
  size_t struct_size;  // set by the caller: sizeof(tessera_minibatch_info)
  uint64_t step;       // of this worker, from 0
  uint64_t epoch;      // from 0
  float rate;    // what the schedule multiplies the learning rate of the caller's optimizer by
  int32_t last;  // 1: an exchange follows
  const uint32_t*
      rows;  // of the job's training data, in its files' order; until the next call; NULL: no data
  size_t row_count;
} tessera_minibatch_info;

// A group of units that rounds deal to the workers, such as the neurons of a hidden layer.
typedef struct tessera_group {
  size_t struct_size;  // set by the caller: sizeof(tessera_group)
  const char*
      name;  // valid while the handle is: that of model.groups, or of the layer that makes the units
  int64_t units;  // in the whole model
} tessera_group;

// What the arrays are of that the last verdict asks for, or that there are now.
typedef struct tessera_round {
  size_t struct_size;  // set by the caller: sizeof(tessera_round)
  uint64_t number;     // of the exchange that ends it
  int64_t site;        // this worker's part among `sites`
  int64_t sites;
  int32_t whole;       // 1: the whole model
  int32_t evaluation;  // 1: for an evaluation alone; the round's arrays stay what they are
} tessera_round;

// Of all rows that the caller scored. Those of all workers add up.
typedef struct tessera_scores {
  size_t struct_size;  // sizeof(tessera_scores)
  double loss;         // mean over `rows`
  double
      score;  // mean over `rows`: accuracy, where the job has layers; else whatever model.evaluation is about
  uint64_t rows;  // 0: this worker scored none
} tessera_scores;

// What went wrong in this thread's last call that returned no TESSERA_OK; "" before. Valid until its next call.
TESSERA_EXPORT const char* tessera_last_message(void);
// "0.2.0": the version of the library.
TESSERA_EXPORT const char* tessera_version(void);
// TESSERA_CLIENT_API of the library.
TESSERA_EXPORT int tessera_client_api(void);

// Reads the job file, its data where it has any, and joins; returns once admitted. *job is set even where the status is
// TESSERA_DEADLINE_EXCEEDED (then tessera_wait), else NULL on failure.
TESSERA_EXPORT tessera_status tessera_join(const tessera_options* options, tessera_job** job);
TESSERA_EXPORT tessera_status tessera_get_info(tessera_job* job, tessera_info* info);
TESSERA_EXPORT tessera_status tessera_tensor_at(tessera_job* job, int64_t index,
                                                tessera_tensor* tensor);
// With subnets; the other calls of this kind are TESSERA_FAILED_PRECONDITION without.
TESSERA_EXPORT tessera_status tessera_group_at(tessera_job* job, int64_t index,
                                               tessera_group* group);
// From the first TESSERA_PULL on.
TESSERA_EXPORT tessera_status tessera_get_round(tessera_job* job, tessera_round* round);
// As tessera_tensor_at, with the extents that the tensor has in this round.
TESSERA_EXPORT tessera_status tessera_tensor_now(tessera_job* job, int64_t index,
                                                 tessera_tensor* tensor);
// The units of the group that the arrays are of, ascending: index i of an array's dimension is unit indices[i] of the
// whole model; where each unit has k indices of the dimension side by side, i / k takes the place of i. Where the model
// is whole they are all units. `indices` and what tessera_tensor_now tells as dims are valid until the next call with
// this job.
TESSERA_EXPORT tessera_status tessera_subnet(tessera_job* job, const char* group,
                                             const uint32_t** indices, size_t* count);
// Of all calls from now on; 0: none.
TESSERA_EXPORT tessera_status tessera_set_timeout(tessera_job* job, double seconds);
// Goes on with the call that ran into its timeout.
TESSERA_EXPORT tessera_status tessera_wait(tessera_job* job, tessera_verdict* verdict);

// The servers' values come into values[0 .. tensor_count). Where the worker goes on from a checkpoint,
// tessera_load_state has its state afterwards.
TESSERA_EXPORT tessera_status tessera_pull(tessera_job* job, float* const* values, size_t count,
                                           tessera_verdict* verdict);
// While the verdict is TESSERA_TRAIN.
TESSERA_EXPORT tessera_status tessera_minibatch(tessera_job* job,
                                                tessera_minibatch_info* minibatch);
// One minibatch of so many examples is done, with this mean loss. An exchange weighs by examples where the method
// does.
TESSERA_EXPORT tessera_status tessera_step(tessera_job* job, uint64_t examples, double loss,
                                           tessera_verdict* verdict);
// Pushes and pulls. `gradients` [parameter_count]: means over the minibatch, where pushes_gradient is 1, else NULL: the
// change of `values` [tensor_count] since they were pulled is pushed, which the library computes. `values` are
// overwritten, but where the verdict is TESSERA_STOP and there was nothing more to come. Without overlap they are the
// servers' values afterwards; with it, those of the exchange before plus what was trained since. With subnets `values`
// are the round's, replace the servers' and are left as they are; the next round's come by tessera_pull.
TESSERA_EXPORT tessera_status tessera_exchange(tessera_job* job, const float* const* gradients,
                                               size_t gradient_count, float* const* values,
                                               size_t count, tessera_verdict* verdict);
// `values` of the last call are what all workers evaluate. Waits for the others, and may ask again where one was lost.
TESSERA_EXPORT tessera_status tessera_evaluate(tessera_job* job, const tessera_scores* scores,
                                               tessera_verdict* verdict);

// The state of this program that is in no tensor: its optimizer's, its data loader's, its random numbers'. Copied.
TESSERA_EXPORT tessera_status tessera_save_state(tessera_job* job, const void* bytes, size_t size,
                                                 tessera_verdict* verdict);
// After tessera_pull: what this rank had saved in the checkpoint that the job goes on from. *size is 0 where there is
// none. Valid until the next call.
TESSERA_EXPORT tessera_status tessera_load_state(tessera_job* job, const void** bytes,
                                                 size_t* size);

// The worker leaves its job: at once between calls, else after the exchange in progress. Any thread. What the call in
// progress, or the next one, returns is TESSERA_OK with TESSERA_STOP.
TESSERA_EXPORT tessera_status tessera_leave(tessera_job* job);
// Leaves if it has not ended, and frees the handle. NULL is allowed. Returns what the worker's life came to.
TESSERA_EXPORT tessera_status tessera_close(tessera_job* job);

#ifdef __cplusplus
}
#endif

#endif  // TESSERA_WORKER_CLIENT_TESSERA_CLIENT_H_
