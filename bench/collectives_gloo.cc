/* bench/collectives_gloo.cc -- the peer: Gloo over TCP, measured like `weft bench collectives`.  Built by
 * collectives.sh.  Arguments: rank ranks directory max-bytes [scale]. */
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

int main(int, char **argv)
{
  int rank = atoi(argv[1]), ranks = atoi(argv[2]);
  long max = atol(argv[4]);
  double scale = argv[5] ? atof(argv[5]) : 1; // of the number of iterations
  gloo::transport::tcp::attr attr;
  attr.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(attr);
  gloo::rendezvous::FileStore store(argv[3]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  std::vector<float> send(max / 4 + 1024), recv(max / 4 + 1024);
  uint32_t tag = 0;

  for (int k = 0; k < 6; k++)
    for (long bytes = 64; bytes <= max; bytes = bytes == 64 ? 4096 : bytes == 16 << 20 ? 64 << 20 : bytes * 16) {
      static const char *const names[] = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "barrier"};
      size_t count = bytes / 4, each = std::max<size_t>(1, count / ranks);
      std::function<void()> run;
      std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter;
      if (k == 0) run = [&] {
        gloo::AllreduceOptions o(context);
        o.setInput(send.data(), count);
        o.setOutput(recv.data(), count);
        o.setReduceFunction(static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
        o.setTag(tag++);
        gloo::allreduce(o);
      };
      if (k == 1) run = [&] {
        gloo::AllgatherOptions o(context);
        o.setInput(send.data(), each);
        o.setOutput(recv.data(), each * ranks);
        o.setTag(tag++);
        gloo::allgather(o);
      };
      if (k == 2) {
        scatter.reset(new gloo::ReduceScatterHalvingDoubling<float>(context, {send.data()}, (int)(each * ranks), std::vector<int>(ranks, (int)each)));
        run = [&] { scatter->run(); };
      }
      if (k == 3) run = [&] {
        gloo::AlltoallOptions o(context);
        o.setInput(send.data(), each * ranks);
        o.setOutput(recv.data(), each * ranks);
        o.setTag(tag++);
        gloo::alltoall(o);
      };
      if (k == 4) run = [&] {
        gloo::BroadcastOptions o(context);
        o.setOutput(send.data(), count);
        o.setRoot(0);
        o.setTag(tag++);
        gloo::broadcast(o);
      };
      if (k == 5) run = [&] {
        gloo::BarrierOptions o(context);
        o.setTag(tag++);
        gloo::barrier(o);
      };
      int n = bytes <= 4096 ? 500 : bytes <= 65536 ? 200 : bytes <= 1 << 20 ? 50 : bytes <= 16 << 20 ? 8 : 3;
      n = std::max(3, (int)(n * scale));
      std::vector<double> samples;
      for (int i = -3; i < n; i++) {
        auto begin = std::chrono::steady_clock::now();
        run();
        double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
        if (i >= 0) samples.push_back(us);
      }
      std::sort(samples.begin(), samples.end());
      if (rank == 0)
        printf("%-15s gloo-tcp     ranks %d  bytes %9ld  iters %5d  p50 %11.2f us  p99 %11.2f us  %8.3f GB/s\n", names[k], ranks,
               k == 5 ? 0 : bytes, n, samples[n / 2], samples[n - 1 - n / 100], bytes / samples[n / 2] / 1e3);
      fflush(stdout);
      if (k == 5) break;
    }
  return 0;
}
