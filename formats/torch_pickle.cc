#include "formats/torch_pickle.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

namespace draftmill::torch_archive {
namespace {

/// What CPython's pickler puts between one MARK and its SETITEMS.
constexpr std::size_t kEntriesAtOnce = 1000;

std::string_view StorageClass(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool: return "BoolStorage";
    case Dtype::kU8: return "ByteStorage";
    case Dtype::kI32: return "IntStorage";
    case Dtype::kI64: return "LongStorage";
    case Dtype::kBf16: return "BFloat16Storage";
    case Dtype::kF32: return "FloatStorage";
    default: return {};
  }
}

class Pickler {
 public:
  explicit Pickler(std::vector<Tensor>& tensors) : tensors_(tensors) {}

  Result<std::string> Run(const Value& value) {
    out_ = "\x80\x02";
    DRAFTMILL_RETURN_IF_ERROR(Put(value));
    out_ += '.';
    return std::move(out_);
  }

 private:
  void Bytes(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) out_ += static_cast<char>((value >> (8 * i)) & 0xFFU);
  }

  void Global(std::string_view module, std::string_view name) {
    out_ += 'c';
    out_ += module;
    out_ += '\n';
    out_ += name;
    out_ += '\n';
  }

  void Text(std::string_view text) {
    out_ += 'X';
    Bytes(text.size(), 4);
    out_ += text;
  }

  /// The shortest of pickle's forms, as CPython chooses it.
  void Number(std::int64_t number) {
    if (number >= 0 && number <= 0xFF) {
      out_ += 'K';
      return Bytes(static_cast<std::uint64_t>(number), 1);
    }
    if (number >= 0 && number <= 0xFFFF) {
      out_ += 'M';
      return Bytes(static_cast<std::uint64_t>(number), 2);
    }
    if (number >= std::numeric_limits<std::int32_t>::min() && number <= std::numeric_limits<std::int32_t>::max()) {
      out_ += 'J';
      return Bytes(static_cast<std::uint64_t>(number), 4);
    }
    out_ += "\x8a\x08";
    Bytes(static_cast<std::uint64_t>(number), 8);
  }

  void Tuple(const std::vector<std::int64_t>& numbers) {
    if (numbers.empty()) {
      out_ += ')';
      return;
    }
    if (numbers.size() > 3) out_ += '(';
    for (const std::int64_t number : numbers) Number(number);
    constexpr std::string_view kEnds = "\x85\x86\x87";
    out_ += numbers.size() > 3 ? 't' : kEnds[numbers.size() - 1];
  }

  /// torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())
  Status PutTensor(const Tensor& tensor) {
    const std::string_view storage = StorageClass(tensor.dtype);
    if (storage.empty()) {
      return InvalidInput("a torch archive cannot hold tensors of " +
                          std::string(safetensors::DtypeName(tensor.dtype)));
    }
    std::vector<std::int64_t> strides(tensor.shape.size(), 1);
    for (std::size_t i = strides.size(); i-- > 1;)
      strides[i - 1] = strides[i] * std::max<std::int64_t>(1, tensor.shape[i]);
    Global("torch._utils", "_rebuild_tensor_v2");
    out_ += "((";
    Text("storage");
    Global("torch", storage);
    Text(std::to_string(tensors_.size()));
    Text("cpu");
    Number(tensor.elements());
    out_ += "tQ";
    Number(0);
    Tuple(tensor.shape);
    Tuple(strides);
    out_ += '\x89';
    Global("collections", "OrderedDict");
    out_ += ")RtR";
    tensors_.push_back(tensor);
    return OkStatus();
  }

  Status PutDict(const Dict& dict) {
    out_ += '}';
    for (std::size_t first = 0; first < dict.entries.size(); first += kEntriesAtOnce) {
      const std::size_t end = std::min(dict.entries.size(), first + kEntriesAtOnce);
      out_ += '(';
      for (std::size_t i = first; i < end; ++i) {
        DRAFTMILL_RETURN_IF_ERROR(Put(dict.entries[i].first));
        DRAFTMILL_RETURN_IF_ERROR(Put(dict.entries[i].second));
      }
      out_ += 'u';
    }
    return OkStatus();
  }

  Status Put(const Value& value) {
    if (const auto* tensor = std::get_if<Tensor>(&value.data)) return PutTensor(*tensor);
    if (const auto* dict = std::get_if<Dict>(&value.data)) return PutDict(*dict);
    if (const auto* text = std::get_if<std::string>(&value.data)) Text(*text);
    if (const auto* flag = std::get_if<bool>(&value.data)) out_ += *flag ? '\x88' : '\x89';
    if (const auto* number = std::get_if<std::int64_t>(&value.data)) Number(*number);
    return OkStatus();
  }

  std::vector<Tensor>& tensors_;
  std::string out_;
};

}  // namespace

Result<std::string> PickleOf(const Value& value, std::vector<Tensor>& tensors) { return Pickler(tensors).Run(value); }

}  // namespace draftmill::torch_archive
