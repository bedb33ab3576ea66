// A network of libtorch (PyTorch's C++ library) as a worker of a Tessera job: the built-in digits.
//
//     c++ -std=c++17 digits_torch.cc $(pkg-config --cflags --libs tessera_client) -ltorch -ltorch_cpu -lc10 -lz
//     ./a.out JOB.yaml DATA_FOLDER [COORDINATOR]
#include <torch/torch.h>
#include <zlib.h>

#include <iostream>

#include <tessera_client.hpp>

torch::Tensor ReadIdx(const std::string& path, int header, int64_t rows, int64_t columns) {
  torch::Tensor bytes = torch::empty({rows, columns}, torch::kUInt8);
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr || gzseek(file, header, SEEK_CUR) != header ||
      gzread(file, bytes.data_ptr(), bytes.numel()) != bytes.numel()) {
    throw std::runtime_error("cannot read " + path);
  }
  gzclose(file);
  return bytes;
}

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("usage: digits_torch JOB.yaml DATA_FOLDER [COORDINATOR]");
  const std::string folder = std::string(argv[2]) + "/";
  const auto pixels = [&](const char* name, int64_t rows) {
    return (ReadIdx(folder + name, 16, rows, 64).to(torch::kFloat) / 255 - 0.0192) / 0.0236;
  };
  const auto labels = [&](const char* name, int64_t rows) {
    return ReadIdx(folder + name, 8, rows, 1).flatten().to(torch::kLong);
  };
  const auto x = pixels("train-images-idx3-ubyte.gz", 1347),
             test_x = pixels("test-images-idx3-ubyte.gz", 450);
  const auto y = labels("train-labels-idx1-ubyte.gz", 1347),
             test_y = labels("test-labels-idx1-ubyte.gz", 450);

  torch::nn::Sequential model(torch::nn::Linear(64, 32), torch::nn::ReLU(),
                              torch::nn::Linear(32, 10));
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.2);
  std::vector<float*> values;  // the parameters lie where PyTorch has them
  for (const auto& parameter : model->parameters()) values.push_back(parameter.data_ptr<float>());

  tessera::client::Options options;
  options.job_file = argv[1];
  options.coordinator = argc > 3 ? argv[3] : "";
  options.description = "libtorch " TORCH_VERSION;
  tessera::client::Job job(options);
  for (tessera_verdict next = job.Pull(values); next != TESSERA_STOP;) {
    if (next == TESSERA_TRAIN) {
      const auto batch = job.minibatch();
      const std::vector<int64_t> rows(batch.rows, batch.rows + batch.row_count);
      const auto index = torch::tensor(rows);
      const auto loss = torch::nn::functional::cross_entropy(
          model->forward(x.index_select(0, index)), y.index_select(0, index));
      optimizer.zero_grad();
      loss.backward();
      if (!job.info().pushes_gradient) optimizer.step();
      next = job.Step(rows.size(), loss.item<double>());
    } else if (next == TESSERA_EXCHANGE) {
      std::vector<const float*> gradients;
      for (const auto& p : model->parameters()) gradients.push_back(p.grad().data_ptr<float>());
      next = job.Exchange(values,
                          job.info().pushes_gradient ? gradients : std::vector<const float*>());
    } else if (next == TESSERA_EVALUATE) {
      torch::NoGradGuard no_gradients;
      const auto logits = model->forward(test_x);
      const double loss = torch::nn::functional::cross_entropy(logits, test_y).item<double>();
      const double accuracy = logits.argmax(1).eq(test_y).to(torch::kDouble).mean().item<double>();
      std::cout << "test loss " << loss << " accuracy " << accuracy << std::endl;
      next = job.Evaluate(loss, accuracy, 450);
    } else {
      next = next == TESSERA_SAVE ? job.SaveState("") : job.Pull(values);
    }
  }
  job.Close();
} catch (const std::exception& error) {
  std::cerr << "digits_torch: " << error.what() << std::endl;
  return 1;
}
