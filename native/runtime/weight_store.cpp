#include "weight_store.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "weight_packing.h"

namespace ferrum {
namespace {

// Source bytes of one claim: enough to make claiming cheap, little enough that members end together.
constexpr size_t kClaimBytes = size_t(128) << 10;

struct Claim {
  const WeightRows* part;
  int tile_begin;
  int tile_end;
};

}  // namespace

WeightView WeightStore::add(WeightType type, int rows, int columns) {
  const PackedSize size = packed_size(type, rows, columns);
  const size_t bytes = size.tile_bytes * size_t(size.tiles);
  if (bytes_ + bytes > arena_.bytes()) throw std::length_error("more weights than were reserved");
  const uint8_t* place = arena_.as<uint8_t>() + bytes_;
  bytes_ += bytes;
  return {type, rows, columns, place, size.tile_bytes, size.scales_offset};
}

void WeightStore::pack(const std::vector<WeightRows>& parts, ThreadTeam& team) {
  std::vector<Claim> claims;
  for (const WeightRows& part : parts) {
    const size_t tile_bytes = source_row_bytes(part.weight.type, part.weight.columns) * kTileColumns;
    const int step = int(std::max<size_t>(1, kClaimBytes / tile_bytes));
    const int tiles = (part.num_rows + kTileColumns - 1) / kTileColumns;
    for (int tile = 0; tile < tiles; tile += step) claims.push_back({&part, tile, std::min(tile + step, tiles)});
  }
  std::atomic<size_t> next{0};
  team.run([&](int) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < claims.size();) {
      const WeightRows& part = *claims[i].part;
      const size_t first_tile = size_t(part.first_row / kTileColumns);
      uint8_t* target =
          arena_.as<uint8_t>() + (part.weight.data - arena_.as<uint8_t>()) + first_tile * part.weight.tile_bytes;
      pack_tiles(part.weight.type, part.num_rows, part.weight.columns, part.source, target, claims[i].tile_begin,
                 claims[i].tile_end);
    }
  });
}

}  // namespace ferrum
