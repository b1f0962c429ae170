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

std::vector<WeightView> WeightStore::add(const std::vector<WeightShape>& shapes) {
  std::vector<PackedSize> sizes;
  size_t tile_bytes = 0;
  for (const WeightShape& shape : shapes) {
    sizes.push_back(packed_size(shape.type, shape.rows, shape.columns));
    tile_bytes += sizes.back().tile_bytes;
    if (sizes.back().tiles != sizes.front().tiles || (shapes.size() > 1 && sizes.back().tiles % 2 != 0))
      throw std::invalid_argument("weights that lie by turns must have one even number of tiles");
  }
  const size_t bytes = tile_bytes * size_t(sizes.front().tiles);
  if (bytes_ + bytes > arena_.bytes()) throw std::length_error("more weights than were reserved");
  const uint8_t* place = arena_.as<uint8_t>() + bytes_;
  bytes_ += bytes;
  std::vector<WeightView> views;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const WeightShape& shape = shapes[i];
    views.push_back(
        {shape.type, shape.rows, shape.columns, place, sizes[i].tile_bytes, 2 * tile_bytes, sizes[i].scales_offset});
    place += 2 * sizes[i].tile_bytes;
  }
  return views;
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
      for (int tile = claims[i].tile_begin; tile < claims[i].tile_end; ++tile) {
        const uint8_t* place = part.weight.tile(part.first_row / kTileColumns + tile);
        pack_tile(part.weight.type, part.num_rows, part.weight.columns, part.source, tile,
                  arena_.as<uint8_t>() + (place - arena_.as<uint8_t>()));
      }
    }
  });
}

}  // namespace ferrum
