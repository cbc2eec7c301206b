// Handlers written with XLA's public C++ header, for tests/runtime/ffi_jax.py: what they see, they write as text.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// Text into a u8 buffer, zeros behind it.
static ffi::Error Say(const std::string& text, ffi::Result<ffi::AnyBuffer> out) {
  if (text.size() > out->size_bytes()) return ffi::Error::InvalidArgument("the text has " + std::to_string(text.size()) + " bytes");
  std::memset(out->untyped_data(), 0, out->size_bytes());
  std::memcpy(out->untyped_data(), text.data(), text.size());
  return ffi::Error::Success();
}

template <typename T>
static void Put(std::ostream& s, const char* name, ffi::Dictionary attrs) {
  auto value = attrs.get<T>(name);
  s << name << "=";
  if (value.has_value()) s << +*value << ";";
  else s << "?;";
}

template <typename T>
static void PutAll(std::ostream& s, const char* name, ffi::Dictionary attrs) {
  auto value = attrs.get<ffi::Span<const T>>(name);
  s << name << "=[";
  if (value.has_value()) for (auto v : *value) s << +v << ",";
  else s << "?";
  s << "];";
}

static ffi::Error Attributes(ffi::Dictionary attrs, ffi::Result<ffi::AnyBuffer> out) {
  std::ostringstream s;
  s.precision(17);
  s << attrs.size() << ":";
  auto flag = attrs.get<bool>("flag");
  s << "flag=" << (flag.has_value() ? (*flag ? "true" : "false") : "?") << ";";
  Put<int8_t>(s, "i8", attrs), Put<int16_t>(s, "i16", attrs), Put<int32_t>(s, "i32", attrs), Put<int64_t>(s, "i64", attrs);
  Put<uint8_t>(s, "u8", attrs), Put<uint16_t>(s, "u16", attrs), Put<uint32_t>(s, "u32", attrs), Put<uint64_t>(s, "u64", attrs);
  Put<float>(s, "f32", attrs), Put<double>(s, "f64", attrs);
  Put<float>(s, "inf", attrs), Put<double>(s, "tiny", attrs);
  PutAll<int8_t>(s, "a8", attrs), PutAll<int32_t>(s, "a32", attrs), PutAll<int64_t>(s, "a64", attrs);
  PutAll<uint8_t>(s, "b8", attrs), PutAll<uint64_t>(s, "b64", attrs);
  PutAll<float>(s, "af", attrs), PutAll<double>(s, "ad", attrs), PutAll<int64_t>(s, "empty", attrs);
  auto text = attrs.get<std::string_view>("text");
  s << "text=" << (text.has_value() ? std::string(*text) : "?") << ";";
  s << "missing=" << attrs.get<int32_t>("nothing").has_value() << ";wrong=" << attrs.get<int32_t>("i64").has_value();
  return Say(s.str(), out);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(attributes, Attributes, ffi::Ffi::Bind().Attrs().Ret<ffi::AnyBuffer>());

static ffi::Error Buffers(ffi::RemainingArgs args, ffi::Result<ffi::AnyBuffer> out, ffi::RemainingRets rets) {
  std::ostringstream s;
  s << args.size() << "/" << rets.size() << ":";
  for (size_t i = 0; i < args.size(); i++) {
    auto b = args.get<ffi::AnyBuffer>(i);
    if (!b.has_value()) return ffi::Error::Internal("no buffer");
    s << static_cast<int>(b->element_type()) << "[";
    for (auto d : b->dimensions()) s << d << ",";
    s << "]" << b->element_count() << "/" << b->size_bytes() << ";";
  }
  for (size_t i = 0; i < rets.size(); i++) {
    auto b = rets.get<ffi::AnyBuffer>(i);
    if (!b.has_value()) return ffi::Error::Internal("no result");
    s << static_cast<int>((*b)->element_type()) << "[";
    for (auto d : (*b)->dimensions()) s << d << ",";
    s << "];";
    std::memset((*b)->untyped_data(), 1, (*b)->size_bytes());
  }
  return Say(s.str(), out);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(buffers, Buffers,
                              ffi::Ffi::Bind().RemainingArgs().Ret<ffi::AnyBuffer>().RemainingRets());

static ffi::Error Failing(int32_t code) {
  return ffi::Error(static_cast<ffi::ErrorCode>(code), "code " + std::to_string(code));
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(failing, Failing, ffi::Ffi::Bind().Attr<int32_t>("code"));

// Wants what the call does not have: the header's own decoding says so.
using Matrix = ffi::Buffer<ffi::F32, 2>;
static ffi::Error Strict(Matrix x, int32_t n, ffi::Result<Matrix> y) {
  for (size_t i = 0; i < x.element_count(); i++) y->typed_data()[i] = x.typed_data()[i] * static_cast<float>(n);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(strict, Strict,
                              ffi::Ffi::Bind().Arg<Matrix>().Attr<int32_t>("n").Ret<Matrix>());

// A result that comes later, from a thread of the handler's own or not at all.
static ffi::Future Later(ffi::Buffer<ffi::F32> x, bool fails, ffi::Result<ffi::Buffer<ffi::F32>> y) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([promise = std::move(promise), x, y, fails]() mutable {
    for (size_t i = 0; i < x.element_count(); i++) y->typed_data()[i] = x.typed_data()[i] + 1;
    if (fails) promise.SetError(ffi::Error(ffi::ErrorCode::kDataLoss, "lost on the way"));
    else promise.SetAvailable();
  }).detach();
  return future;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(later, Later,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Attr<bool>("fails").Ret<ffi::Buffer<ffi::F32>>());

// All stages: the first keeps a state for the others, which count in it.
struct Counter {
  static inline ffi::TypeId id = {};
  int32_t start, prepared = 0, initialized = 0, executed = 0;
};
extern "C" {
ffi::TypeId* counter_id() { return &Counter::id; }
const ffi::TypeInfo* counter_info() {
  static const ffi::TypeInfo info = ffi::MakeTypeInfo<Counter>();
  return &info;
}
}
static ffi::ErrorOr<std::unique_ptr<Counter>> Instantiate(int32_t start) {
  auto counter = std::make_unique<Counter>();
  counter->start = start;
  return counter;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(stages_instantiate, Instantiate, ffi::Ffi::BindInstantiate().Attr<int32_t>("start"));
static ffi::Error Prepare(Counter* counter) { return counter->prepared++, ffi::Error::Success(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(stages_prepare, Prepare, ffi::Ffi::Bind<ffi::ExecutionStage::kPrepare>().Ctx<ffi::State<Counter>>());
static ffi::Error Initialize(Counter* counter) { return counter->initialized++, ffi::Error::Success(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(stages_initialize, Initialize,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>().Ctx<ffi::State<Counter>>());
static ffi::Error Execute(Counter* counter, ffi::Result<ffi::BufferR1<ffi::S32>> y) {
  const int32_t seen[4] = {counter->start, counter->prepared, counter->initialized, ++counter->executed};
  std::copy(seen, seen + 4, y->typed_data());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(stages_execute, Execute,
                              ffi::Ffi::Bind().Ctx<ffi::State<Counter>>().Ret<ffi::BufferR1<ffi::S32>>());

// The platform's threads.
static ffi::Error Threads(ffi::ThreadPool pool, ffi::Result<ffi::BufferR0<ffi::S32>> y) {
  std::atomic<int32_t> done{0};
  for (int i = 0; i < 4; i++) pool.Schedule([&done] { done++; });
  while (done < 4) std::this_thread::yield();
  *y->typed_data() = done;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(threads, Threads,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Ret<ffi::BufferR0<ffi::S32>>());
