#include "pipeline/reports/facts_text.h"

#include <gtest/gtest.h>

namespace draftmill {
namespace {

TEST(FactsTextTest, WritesSectionsTablesAndUnits) {
  const json::Value facts = *json::Parse(R"({
    "run": "tidy-heron", "sample_id": 123456, "samples": 123456, "disk_bytes": 1610612736, "took_seconds": 125.0,
    "tokens_per_second": 5346.0, "complete": true, "why": [], "notes": ["a", "b"], "empty": {}, "nothing": null,
    "stages": [{"stage": "ingest", "done": 1000, "bytes": 1024}, {"stage": "é", "done": 7, "state": "pending"}],
    "limits": {"share": 0.05}})");
  EXPECT_EQ(FactsAsText(facts), R"(run: tidy-heron
sample id: 123456
samples: 123,456
disk bytes: 1.50 GiB
took seconds: 2 m 05 s
tokens per second: 5.35 k/s
complete: yes
why: none
notes:
  a
  b
empty: {}
nothing: -
stages:
  stage    done     bytes  state
  ingest  1,000  1.00 KiB
  é           7            pending
limits:
  share: 0.05
)");
}

TEST(FactsTextTest, AListIsATable) {
  EXPECT_EQ(FactsAsText(*json::Parse(R"([{"a": "x"}])")), "a\nx\n");
  EXPECT_EQ(FactsAsText(json::Value(3)), "3\n");
}

}  // namespace
}  // namespace draftmill
