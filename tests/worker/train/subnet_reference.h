// Independent subnet training as the paper has it, in one process and one thread, with whole matrices:
// what the shards, replicas and loops together must equal to the bit.
//
// Written apart from common/keyset: parts come from a full sort, and entries are copied one by one.
#ifndef TESSERA_TESTS_WORKER_TRAIN_SUBNET_REFERENCE_H_
#define TESSERA_TESTS_WORKER_TRAIN_SUBNET_REFERENCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/layout/parameters.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network.h"

namespace tessera {

class SubnetReference {
 public:
  // The job's initial values. `workers` share the rows of an epoch, by rank.
  SubnetReference(const v1::Job& job, const Dataset* train, int workers, Backend* backend);

  // One round of `steps` minibatches after `first_step` others, cut among as many sites as `returns`
  // has. Those where it says false train in vain. Parts are equal unless `shares` say otherwise.
  void Round(uint64_t round, uint64_t first_step, int64_t steps, const std::vector<bool>& returns,
             const std::vector<int>& shares = {});

  // An exchange of local SGD on the whole model. Each worker's optimizer begins with its first one.
  // Those where `returns` says false are gone.
  void Whole(uint64_t first_step, int64_t steps, const std::vector<bool>& returns);

  // All parameters, one after the other.
  std::vector<float> Parameters() const;
  // Entries of one site's subnet.
  int64_t SubnetSize(uint64_t round, int sites, int site) const {
    return SubnetSize(round, std::vector<int>(sites, 1), site);
  }
  int64_t SubnetSize(uint64_t round, const std::vector<int>& shares, int site) const;

 private:
  // The rows and columns of a parameter that a site has. Vectors have column 0.
  struct Piece {
    std::vector<int> rows;
    std::vector<int> columns;
    bool shared = false;
  };
  using Layers = google::protobuf::RepeatedPtrField<v1::Layer>;
  // Units that flow between layers: those that the site has, of how many.
  struct Units {
    std::vector<int> mine;
    int all = 0;
    // Rows are [times, units, rows of a unit]: those of a head are queries, keys and values.
    int times = 1;
    bool whole() const { return static_cast<int>(mine.size()) == all; }
  };
  // How a round is cut for a site, on the way through the layers.
  struct Cut {
    uint64_t round = 0;
    std::vector<int> shares;
    int site = 0;
    int groups = 0;
    std::vector<Piece> pieces;
  };
  Units Walk(const Layers& layers, Units units, Cut* cut) const;
  void AddPiece(const Units& rows, const Units& columns, Cut* cut) const;
  std::vector<Piece> PiecesOf(uint64_t round, const std::vector<int>& shares, int site) const;
  std::vector<int> Part(uint64_t round, int group, int width, const std::vector<int>& shares,
                        int site) const;
  v1::Model SmallModel(const std::vector<Piece>& pieces) const;
  // The site's parameters after the round.
  std::vector<std::vector<float>> Train(const std::vector<Piece>& pieces, int site,
                                        uint64_t first_step, int64_t steps);
  std::vector<uint32_t> Rows(int rank, uint64_t step) const;
  // A worker that trains the whole model.
  struct Local {
    std::unique_ptr<Network> network;
    std::unique_ptr<LocalOptimizer> optimizer;
    uint64_t steps = 0;
  };
  void Step(Local* local, int rank, uint64_t step);

  // With repeats written out.
  const v1::Job job_;
  const Dataset& train_;
  const int workers_;
  Backend& backend_;
  const ModelShape shape_;
  std::vector<std::vector<float>> values_;  // by parameter
  std::map<int, Local> locals_;             // by rank
};

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_TRAIN_SUBNET_REFERENCE_H_
