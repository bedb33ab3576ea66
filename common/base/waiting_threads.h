// How the threads that share a kernel's loops wait for the next one.
#ifndef TESSERA_COMMON_BASE_WAITING_THREADS_H_
#define TESSERA_COMMON_BASE_WAITING_THREADS_H_

namespace tessera {

// GNU OpenMP's threads spin for milliseconds before they sleep, on cores that another worker or a server may
// need (docs/performance.md has what that costs). This has them spin for some microseconds, which costs
// nothing that could be measured where every thread has a core.
//
// The library reads GOMP_SPINCOUNT when a program is loaded: the program is started anew with it, as the
// same process. To be called before anything else. Returns where that has been done, where the user has
// set GOMP_SPINCOUNT or OMP_WAIT_POLICY, and where it cannot be done. (valgrind and the like follow with their
// flag for children, or where GOMP_SPINCOUNT is set.)
void StartWithShortWaits(char** argv);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_WAITING_THREADS_H_
