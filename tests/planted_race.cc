// A program with a data race in a body of a TBB flow graph, to show that ThreadSanitizer sees into those bodies and would
// report a race of ours. Built under ThreadSanitizer only (tests/CMakeLists.txt).
#include <tbb/flow_graph.h>

#include <cstdio>

namespace {

/// Nodes of unlimited concurrency that all count in one plain variable.
int CountWithARace() {
  int count = 0;
  tbb::flow::graph graph;
  tbb::flow::function_node<int, int> counter(graph, tbb::flow::unlimited, [&count](int item) { return count += item; });
  for (int i = 0; i < 10000; ++i) counter.try_put(1);
  graph.wait_for_all();
  return count;
}

}  // namespace

int main() {
  std::printf("%d\n", CountWithARace());
  return 0;
}
