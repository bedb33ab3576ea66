// Memory that oneDNN's primitives take by turns.
#ifndef TESSERA_KERNELS_CPU_DNNL_ROOM_H_
#define TESSERA_KERNELS_CPU_DNNL_ROOM_H_

#include "dnnl.hpp"

namespace tessera {

// Grows to what is asked for and stays.
class DnnlRoom {
 public:
  // Null for nothing.
  void* Of(const dnnl::memory::desc& wanted, const dnnl::engine& engine) {
    if (wanted.get_size() == 0) return nullptr;
    if (!held_ || held_.get_desc().get_size() < wanted.get_size()) {
      held_ = dnnl::memory();
      held_ = dnnl::memory(wanted, engine);
    }
    return held_.get_data_handle();
  }

 private:
  dnnl::memory held_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_DNNL_ROOM_H_
