// Keyword spotting in C++ with ONNX Runtime's C API and nothing else: the graph takes samples, so there is no signal
// processing here.
//
//   kws models/stream.audio.onnx clip.wav            which word is it?      (16-bit mono WAV, 16 kHz, up to 1.3 s)
//   arecord -f S16_LE -r 16000 -c 1 -t raw | kws models/stream.audio.step.onnx -      which words are said?
//
// Labels and thresholds come from the file's own metadata. The rule for streams is the one of kws_edge in its simplest
// form: probabilities averaged over the last windows, one event for each word. It leaves out the gate, abstentions and
// per-label thresholds.
#include <onnxruntime_c_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

static const OrtApi* ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);

[[noreturn]] static void fail(const std::string& what) {
  std::fprintf(stderr, "error: %s\n", what.c_str());
  std::exit(2);
}

static void check(OrtStatus* status) {
  if (status) fail(ort->GetErrorMessage(status));
}

// --- What a file says of itself: as much JSON as that takes ---

// Where the value of "key" begins in the object that begins at `from`, and not in what that object holds; or nothing.
static size_t after(const std::string& json, const std::string& key, size_t from = 0) {
  int depth = 0;
  for (size_t at = from; at < json.size(); ++at) {
    if (json[at] == '{' || json[at] == '[') ++depth;
    if ((json[at] == '}' || json[at] == ']') && --depth <= 0) break;
    if (json[at] != '"') continue;
    const size_t begin = at + 1;
    for (++at; at < json.size() && json[at] != '"'; ++at)
      if (json[at] == '\\') ++at;
    if (depth == 1 && json.compare(begin, at - begin, key) == 0 && at + 1 < json.size() && json[at + 1] == ':')
      return json.find_first_not_of(' ', at + 2);
  }
  return std::string::npos;
}

static double number(const std::string& json, const std::string& key, size_t from, double otherwise) {
  size_t at = after(json, key, from);
  return at == std::string::npos ? otherwise : std::strtod(json.c_str() + at, nullptr);
}

static std::vector<std::string> texts(const std::string& json, const std::string& key) {
  std::vector<std::string> found;
  size_t at = after(json, key);
  if (at == std::string::npos) fail("no " + key + " in the metadata; expected a model of kws-export");
  for (size_t end = json.find(']', at); (at = json.find('"', at)) < end; ++at) {
    size_t close = json.find('"', at + 1);
    if (close == std::string::npos) fail("the metadata end within " + key);
    found.push_back(json.substr(at + 1, close - at - 1));
    at = close;
  }
  return found;
}

// --- The model ---

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

struct Answer {
  std::vector<float> alpha;
  float vacuity, entropy;
};

class Model {
 public:
  explicit Model(const char* path) {
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "kws", &env_));
    OrtSessionOptions* options;
    check(ort->CreateSessionOptions(&options));
    check(ort->SetIntraOpNumThreads(options, 1));  // the network is too small for more
    check(ort->CreateSession(env_, path, options, &session_));
    ort->ReleaseSessionOptions(options);
    check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory_));
    check(ort->GetAllocatorWithDefaultOptions(&allocator_));

    OrtModelMetadata* metadata;
    char* json;
    check(ort->SessionGetModelMetadata(session_, &metadata));
    check(ort->ModelMetadataLookupCustomMetadataMap(metadata, allocator_, "kws_edge", &json));
    if (!json) fail(std::string(path) + " says nothing of itself; expected a model of kws-export");
    about = json;
    check(ort->AllocatorFree(allocator_, json));
    ort->ReleaseModelMetadata(metadata);
    labels = texts(about, "labels");

    size_t inputs;
    check(ort->SessionGetInputCount(session_, &inputs));
    for (size_t i = 0; i < inputs; ++i) add_state(i);
  }

  ~Model() {
    ort->ReleaseMemoryInfo(memory_);
    ort->ReleaseSession(session_);
    ort->ReleaseEnv(env_);
  }

  bool is_stream() const { return !states_.empty(); }

  // The next samples of a stream, a multiple of 160; or a whole clip. Full scale is ±1.
  Answer run(std::vector<float>& samples) {
    std::vector<const char*> inputs{"audio"}, outputs{"alpha", "vacuity", "entropy"};
    std::vector<std::string> next;
    std::vector<OrtValue*> values{tensor(samples, {1, static_cast<int64_t>(samples.size())})};
    for (Tensor& state : states_) {
      inputs.push_back(state.name.c_str());
      values.push_back(tensor(state.values, state.shape));
      next.push_back("next_" + state.name.substr(6));  // state_NAME comes out as next_NAME
    }
    for (const std::string& name : next) outputs.push_back(name.c_str());
    std::vector<OrtValue*> results(outputs.size(), nullptr);
    check(ort->Run(session_, nullptr, inputs.data(), values.data(), inputs.size(), outputs.data(), outputs.size(),
                   results.data()));
    Answer answer{copy(results[0], labels.size()), copy(results[1], 1)[0], copy(results[2], 1)[0]};
    for (size_t i = 0; i < states_.size(); ++i) states_[i].values = copy(results[3 + i], states_[i].values.size());
    for (OrtValue* value : values) ort->ReleaseValue(value);
    for (OrtValue* value : results) ort->ReleaseValue(value);
    return answer;
  }

  std::string about;  // JSON
  std::vector<std::string> labels;

 private:
  void add_state(size_t i) {
    char* name;
    check(ort->SessionGetInputName(session_, i, allocator_, &name));
    Tensor state{name, {}, {}};
    check(ort->AllocatorFree(allocator_, name));
    if (state.name.rfind("state_", 0) != 0) return;
    OrtTypeInfo* type;
    const OrtTensorTypeAndShapeInfo* info;
    size_t rank, size = 1;
    check(ort->SessionGetInputTypeInfo(session_, i, &type));
    check(ort->CastTypeInfoToTensorInfo(type, &info));
    check(ort->GetDimensionsCount(info, &rank));
    state.shape.resize(rank);
    check(ort->GetDimensions(info, state.shape.data(), rank));
    ort->ReleaseTypeInfo(type);
    if (!rank) fail(state.name + " is a number; expected a state of one stream and more");
    state.shape[0] = 1;  // one stream
    for (int64_t n : state.shape) {
      if (n < 1 || n > 1 << 20 || (size *= n) > 1 << 24) fail(state.name + " has no size, or is far too large");
    }
    state.values.assign(size, 0.0f);  // a stream begins with zeros
    states_.push_back(state);
  }

  OrtValue* tensor(std::vector<float>& values, const std::vector<int64_t>& shape) {
    OrtValue* value;
    check(ort->CreateTensorWithDataAsOrtValue(memory_, values.data(), values.size() * sizeof(float), shape.data(),
                                              shape.size(), ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &value));
    return value;
  }

  std::vector<float> copy(OrtValue* value, size_t size) {
    OrtTensorTypeAndShapeInfo* info;
    ONNXTensorElementDataType type;
    size_t count;
    check(ort->GetTensorTypeAndShape(value, &info));
    check(ort->GetTensorElementType(info, &type));
    check(ort->GetTensorShapeElementCount(info, &count));
    ort->ReleaseTensorTypeAndShapeInfo(info);
    if (type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT || count != size)
      fail(std::to_string(count) + " numbers from the network; expected " + std::to_string(size) + " by its metadata");
    float* data;
    check(ort->GetTensorMutableData(value, reinterpret_cast<void**>(&data)));
    return {data, data + size};
  }

  OrtEnv* env_ = nullptr;
  OrtSession* session_ = nullptr;
  OrtMemoryInfo* memory_ = nullptr;
  OrtAllocator* allocator_ = nullptr;
  std::vector<Tensor> states_;
};

// --- A clip ---

static std::vector<float> read_wav(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  auto u32 = [&](size_t at) { uint32_t v; std::memcpy(&v, &bytes[at], 4); return v; };  // on a little-endian machine
  auto u16 = [&](size_t at) { uint16_t v; std::memcpy(&v, &bytes[at], 2); return v; };
  if (bytes.size() < 44 || std::memcmp(&bytes[0], "RIFF", 4) || std::memcmp(&bytes[8], "WAVE", 4))
    fail(std::string(path) + ": no WAV file");
  bool known = false;
  uint64_t at = 12;  // of more bits than a chunk's size has, which may lead round to where the loop has been
  for (uint64_t size; at + 8 <= bytes.size(); at += 8 + size + size % 2) {
    size = u32(at + 4);
    if (!std::memcmp(&bytes[at], "fmt ", 4) && at + 24 <= bytes.size())
      known = u16(at + 8) == 1 && u16(at + 10) == 1 && u32(at + 12) == 16000 && u16(at + 22) == 16;
    if (std::memcmp(&bytes[at], "data", 4)) continue;
    if (!known) fail(std::string(path) + ": expected 16-bit mono PCM at 16 kHz");
    size_t n = std::min<uint64_t>(size, bytes.size() - at - 8) / 2;
    if (!n) break;
    std::vector<float> samples(n);
    for (size_t i = 0; i < n; ++i) samples[i] = static_cast<int16_t>(u16(at + 8 + 2 * i)) / 32768.0f;
    return samples;
  }
  fail(std::string(path) + ": no samples");
}

// Whether a label is a word: _unknown_ and _silence_, which a model may have, are never accepted.
static bool is_word(const std::string& label) { return label[0] != '_'; }

static void classify(Model& model, const char* path) {
  std::vector<float> samples = read_wav(path);
  if (samples.size() < 400 || samples.size() > 20879)  // a frame of 25 ms, and what the network's 128 frames hold
    fail(std::to_string(samples.size()) + " samples; expected 400 to 20879, up to 1.3 s");
  Answer answer = model.run(samples);
  size_t best = std::max_element(answer.alpha.begin(), answer.alpha.end()) - answer.alpha.begin();
  float sum = 0;
  for (float a : answer.alpha) sum += a;
  std::string score = model.about.substr(after(model.about, "score") + 1, 7);  // entropy or vacuity
  size_t points = after(model.about, score, after(model.about, "thresholds"));
  const size_t end = model.about.find(']', points);
  for (points = model.about.find('{', points); points < end; points = model.about.find('{', points + 1))
    if (std::fabs(number(model.about, "target", points, 0) - 0.995) < 1e-9) break;
  float uncertainty = score == "vacuity" ? answer.vacuity : answer.entropy;
  const double most = points < end ? number(model.about, "threshold", points, -1) : -1;
  bool sure = is_word(model.labels[best]) && uncertainty <= most;
  std::printf("%s probability %.3f entropy %.3f vacuity %.3f\n", sure ? model.labels[best].c_str() : "not sure",
              answer.alpha[best] / sum, answer.entropy, answer.vacuity);
}

// --- A stream ---

static void listen(Model& model) {
  const size_t hop = 1600, K = model.labels.size();  // 0.1 s
  const int warming_up = 13;                         // hops until the first whole window
  size_t settings = after(model.about, "settings", after(model.about, "stream"));
  if (settings == std::string::npos) fail("the model was not calibrated on streams; expected kws-edge calibrate");
  const size_t smooth = std::max(1l, std::lround(number(model.about, "smoothing", settings, 0.3) / 0.1));
  const double refractory = number(model.about, "refractory", settings, 0.8);
  const size_t thresholds = after(model.about, "thresholds", settings);
  const double most_entropy = number(model.about, "entropy", thresholds, 1);
  const double most_vacuity = number(model.about, "vacuity", thresholds, 1);

  std::deque<std::vector<float>> recent;  // probabilities, and the vacuity behind them
  std::vector<int16_t> raw(hop);
  std::vector<float> samples(hop);
  double last = -1e9;
  bool armed = true;
  for (int hops = 1; std::fread(raw.data(), sizeof(int16_t), hop, stdin) == hop; ++hops) {
    std::transform(raw.begin(), raw.end(), samples.begin(), [](int16_t s) { return s / 32768.0f; });
    Answer answer = model.run(samples);
    if (hops < warming_up) continue;
    float sum = 0;
    for (float a : answer.alpha) sum += a;
    for (float& a : answer.alpha) a /= sum;
    answer.alpha.push_back(answer.vacuity);
    recent.push_back(answer.alpha);
    if (recent.size() > smooth) recent.pop_front();

    std::vector<double> mean(K + 1, 0.0);
    for (size_t k = 0; k < K; ++k) mean[k] = (smooth - recent.size()) / double(smooth * K);  // before: no evidence
    mean[K] = (smooth - recent.size()) / double(smooth);
    for (const auto& p : recent)
      for (size_t k = 0; k <= K; ++k) mean[k] += p[k] / smooth;
    double entropy = 0;
    for (size_t k = 0; k < K; ++k) entropy -= mean[k] * std::log(std::max(mean[k], 1e-30)) / std::log(double(K));
    size_t best = std::max_element(mean.begin(), mean.begin() + K) - mean.begin();
    const bool accepted = is_word(model.labels[best]) && entropy <= most_entropy && mean[K] <= most_vacuity;
    const double time = hops * 0.1;
    if (accepted && armed && time - last >= refractory) {
      std::printf("%.1f s %s probability %.3f entropy %.3f vacuity %.3f\n", time, model.labels[best].c_str(),
                  mean[best], entropy, mean[K]);
      std::fflush(stdout);
      last = time;
      armed = false;
    }
    armed = armed || !accepted;
  }
}

int main(int count, char** words) {
  if (count != 3) fail("expected kws MODEL.audio.onnx FILE.wav, or kws MODEL.audio.step.onnx - with samples as input");
  if (!ort) fail("this ONNX Runtime is older than its header; expected version " + std::to_string(ORT_API_VERSION));
  Model model(words[1]);
  if (std::strcmp(words[2], "-"))
    model.is_stream() ? fail("a stream's model; expected the one without .step for a file") : classify(model, words[2]);
  else
    model.is_stream() ? listen(model) : fail("a clip's model; expected MODEL.audio.step.onnx for a stream");
}
