#include "stages/extract/state_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

namespace draftmill {
namespace {

class CountingMemory : public StateMemory {
 public:
  void* Take(std::size_t bytes) override {
    ++taken;
    return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  }
  void GiveBack(void* memory) override {
    ++given_back;
    std::free(memory);  // NOLINT: pairs with aligned_alloc
  }
  int taken = 0;
  int given_back = 0;
};

TEST(StateMemoryTest, LentMemoryGoesBackOnceHoweverTheVectorMoves) {
  auto memory = std::make_shared<CountingMemory>();
  {
    StateVector states(1000, StateAllocator(memory));
    states[7] = 42;
    StateVector moved = std::move(states);
    StateVector assigned;
    assigned = std::move(moved);
    EXPECT_EQ(assigned[7], 42);
    EXPECT_EQ(memory->given_back, 0);
  }
  EXPECT_EQ(memory->taken, 1);
  EXPECT_EQ(memory->given_back, 1);
}

TEST(StateMemoryTest, ACopyLivesOnTheHeap) {
  auto memory = std::make_shared<CountingMemory>();
  const StateVector states(10, 5, StateAllocator(memory));
  const StateVector copy = states;
  EXPECT_EQ(memory->taken, 1);
  EXPECT_EQ(copy, StateVector(10, 5));
}

}  // namespace
}  // namespace draftmill
