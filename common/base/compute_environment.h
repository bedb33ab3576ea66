// The environment that a program computes in.
#ifndef TESSERA_COMMON_BASE_COMPUTE_ENVIRONMENT_H_
#define TESSERA_COMMON_BASE_COMPUTE_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace tessera {

// What `given` ("NAME=value" each) is without the variables by which OpenMP, oneDNN and NVIDIA's libraries would
// compute something else than the job says: teams of other sizes (oneDNN leaves parts of a product out where a team is
// smaller than it was told), products in lower precision, sums in another order.
//
// How threads wait changes no result, and stays the user's. GNU OpenMP's spin for milliseconds before they sleep, on
// cores that another worker or a server may need (docs/design/network.md has what that costs). Where neither
// GOMP_SPINCOUNT nor OMP_WAIT_POLICY is given the first is added: they spin for some microseconds, which costs nothing
// that could be measured where every thread has a core.
std::vector<std::string> ComputeEnvironment(const std::vector<std::string>& given);

// What ComputeEnvironment adds to this process's: for a child that computes, which then need not start itself anew.
std::vector<std::string> AddedComputeVariables();

// The libraries read their variables when a program is loaded: this one is started anew, as the same process, where its
// environment is not ComputeEnvironment of itself. To be called before anything else. Returns where it is, and where
// that cannot be done, as without /proc: who needs a team measures it (kernels/cpu/threads.h). (valgrind and the like
// follow with their flag for children.)
void StartInComputeEnvironment(char** argv);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_COMPUTE_ENVIRONMENT_H_
