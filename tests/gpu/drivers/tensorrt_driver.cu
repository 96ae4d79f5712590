/* Builds and runs engines that hold our plugins. Commands (CASE: see case_file.h; LIBRARY "-": none is loaded):
 *
 *     build LIBRARY ENGINE CASE...     a network of the cases' plugins, built and written to ENGINE
 *     run LIBRARY ENGINE CASE...       ENGINE read and run, also from a CUDA graph; outputs compared with the raw kernels'
 *                                      and written
 *     time LIBRARY ENGINE CASE         "engine MICROSECONDS bare MICROSECONDS"
 *     direct LIBRARY CASE...           (10 and later) plugin objects called without an engine; outputs as for run
 *     parse LIBRARY MODEL.onnx         (10 and later) "NAME type [dims]" of each output of a parsed model
 */
#include <cstring>

#include "bare_kernels.h"
#include "device.h"
#include "networks.h"

#if NV_TENSORRT_MAJOR >= 10
#include <NvOnnxParser.h>
#endif

static Logger logger;

struct Stream {
    cudaStream_t get = nullptr;
    Stream() { check_cuda(cudaStreamCreateWithFlags(&get, cudaStreamNonBlocking), "stream"); }
    ~Stream() { cudaStreamDestroy(get); }
};

static std::vector<Case> read_cases(const std::vector<std::string> &paths)
{
    std::vector<Case> cases;
    for (const std::string &path : paths)
        cases.push_back(read_case(path));
    return cases;
}

#if NV_TENSORRT_MAJOR < 10
static bool takes_int8(const std::vector<Case> &cases)
{
    for (const Case &made : cases)
        for (const CaseTensor &input : made.inputs)
            if (input.type == "int8")
                return true;
    return false;
}
#endif

static void build(const std::string &engine_path, const std::vector<Case> &cases)
{
    std::unique_ptr<nvinfer1::IBuilder> builder(nvinfer1::createInferBuilder(logger));
    if (!builder)
        throw std::runtime_error("builder: not created");
    std::unique_ptr<nvinfer1::INetworkDefinition> network(builder->createNetworkV2(network_flags));
    std::unique_ptr<nvinfer1::IBuilderConfig> config(builder->createBuilderConfig());
    nvinfer1::IOptimizationProfile *profile = builder->createOptimizationProfile();
    for (const Case &made : cases)
        add_case(*network, *profile, made);
    config->addOptimizationProfile(profile);
    config->setTacticSources(0);
#if NV_TENSORRT_MAJOR < 10
    config->setFlag(nvinfer1::BuilderFlag::kFP16);
    if (takes_int8(cases)) /* where no tensor has a scale, 8.6 refuses the flag */
        config->setFlag(nvinfer1::BuilderFlag::kINT8);
#endif
    std::unique_ptr<nvinfer1::IHostMemory> plan(builder->buildSerializedNetwork(*network, *config));
    if (!plan)
        throw std::runtime_error("engine: not built");
    write_file(engine_path, plan->data(), plan->size());
    std::printf("built %zu bytes\n", plan->size());
}

/* An engine, its context, and a buffer for every tensor by name. */
class Running {
  public:
    Running(const std::string &path, const std::vector<Case> &cases)
    {
        std::ifstream file(path, std::ios::binary);
        const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
        runtime_.reset(nvinfer1::createInferRuntime(logger));
        engine_.reset(runtime_->deserializeCudaEngine(bytes.data(), bytes.size()));
        if (!engine_)
            throw std::runtime_error(path + ": not read");
        context_.reset(engine_->createExecutionContext());
        if (!context_)
            throw std::runtime_error(path + ": no execution context");
        if (!context_)
            throw std::runtime_error(path + ": no context");
        for (const Case &made : cases) {
            for (const CaseTensor &tensor : made.inputs)
                bind(made.plugin + "." + tensor.name, load_input(tensor), &tensor);
            for (const CaseTensor &tensor : made.outputs)
                bind(made.plugin + "." + tensor.name,
                     std::make_unique<Buffer>(count(tensor.shape) * item_bytes(tensor.type)), nullptr);
        }
    }

    void enqueue(cudaStream_t stream)
    {
        if (!context_->enqueueV3(stream))
            throw std::runtime_error("enqueue: refused");
    }

    Buffer &buffer(const std::string &name) { return *buffers_.at(name); }

    /* The tensors of a case, without the plugin's name. */
    Addresses addresses(const Case &made, const std::vector<CaseTensor> &tensors) const
    {
        Addresses found;
        for (const CaseTensor &tensor : tensors)
            found[tensor.name] = buffers_.at(made.plugin + "." + tensor.name)->data();
        return found;
    }

  private:
    void bind(const std::string &name, std::unique_ptr<Buffer> buffer, const CaseTensor *input)
    {
        if (input != nullptr && !context_->setInputShape(name.c_str(), dims_of(input->shape)))
            throw std::runtime_error(name + ": shape refused");
        if (!context_->setTensorAddress(name.c_str(), buffer->data()))
            throw std::runtime_error(name + ": address refused");
        buffers_[name] = std::move(buffer);
    }

    std::unique_ptr<nvinfer1::IRuntime> runtime_;
    std::unique_ptr<nvinfer1::ICudaEngine> engine_;
    std::unique_ptr<nvinfer1::IExecutionContext> context_;
    std::map<std::string, std::unique_ptr<Buffer>> buffers_;
};

/* Runs, then replays a graph into overwritten outputs: both must give the same bytes. */
static void run(const std::string &engine_path, const std::vector<Case> &cases)
{
    Stream stream;
    Running running(engine_path, cases);
    running.enqueue(stream.get);
    check_cuda(cudaStreamSynchronize(stream.get), "run");
    std::map<std::string, std::vector<char>> first;
    for (const Case &made : cases) {
        std::vector<std::vector<char>> outputs;
        for (const CaseTensor &tensor : made.outputs) {
            Buffer &buffer = running.buffer(made.plugin + "." + tensor.name);
            outputs.push_back(buffer.read());
            first[made.plugin + "." + tensor.name] = outputs.back();
            write_file(tensor.source, outputs.back().data(), buffer.num_bytes());
            buffer.fill(0x5a);
        }
        compare_with_kernel(made, running.addresses(made, made.inputs), outputs, stream.get);
    }
    const Graph graph([&](cudaStream_t on) { running.enqueue(on); }, 1, stream.get);
    for (int i = 0; i < 3; i++)
        graph.replay(stream.get);
    check_cuda(cudaStreamSynchronize(stream.get), "graph");
    for (const auto &[name, bytes] : first)
        if (running.buffer(name).read() != bytes)
            throw std::runtime_error(name + ": the CUDA graph gave other bytes than the engine");
    std::printf("ran, and replayed from a graph: the raw kernels' bytes\n");
}

static void time_engine(const std::string &engine_path, const Case &made)
{
    Stream stream;
    Running running(engine_path, {made});
    running.enqueue(stream.get);
    check_cuda(cudaStreamSynchronize(stream.get), "run");
    const BareKernel bare(made, running.addresses(made, made.inputs));
    double best_engine = 1e30, best_bare = 1e30;
    for (int i = 0; i < 3; i++) {
        best_bare = std::min(best_bare, time_work([&](cudaStream_t on) { bare.launch(on); }, stream.get));
        best_engine = std::min(best_engine, time_work([&](cudaStream_t on) { running.enqueue(on); }, stream.get));
    }
    std::printf("engine %.2f bare %.2f\n", best_engine, best_bare);
}

#if NV_TENSORRT_MAJOR >= 10
static nvinfer1::PluginTensorDesc describe(const CaseTensor &tensor)
{
    return {dims_of(tensor.shape), tensorrt_type(tensor.type), nvinfer1::TensorFormat::kLINEAR, 1.0f};
}

/* Stores the plugin's attributes and makes it again from them, as an engine does. */
static nvinfer1::IPluginV3 *store_and_restore(const Case &made, nvinfer1::IPluginV3OneRuntime &runtime)
{
    nvinfer1::IPluginV3 *restored = find_creator(made.plugin)
                                        ->createPlugin(made.plugin.c_str(), runtime.getFieldsToSerialize(),
                                                       nvinfer1::TensorRTPhase::kRUNTIME);
    if (restored == nullptr)
        throw std::runtime_error(made.plugin + ": not restored from its fields");
    return restored;
}

static void call_directly(const Case &made)
{
    using nvinfer1::PluginCapabilityType;
    Stream stream;
    std::unique_ptr<nvinfer1::IPluginV3> plugin(create_plugin(made));
    auto *builds = static_cast<nvinfer1::IPluginV3OneBuild *>(plugin->getCapabilityInterface(PluginCapabilityType::kBUILD));
    auto *original =
        static_cast<nvinfer1::IPluginV3OneRuntime *>(plugin->getCapabilityInterface(PluginCapabilityType::kRUNTIME));
    std::unique_ptr<nvinfer1::IPluginV3> restored(store_and_restore(made, *original));
    auto *runs =
        static_cast<nvinfer1::IPluginV3OneRuntime *>(restored->getCapabilityInterface(PluginCapabilityType::kRUNTIME));

    std::vector<nvinfer1::DynamicPluginTensorDesc> descriptions;
    std::vector<nvinfer1::PluginTensorDesc> plain;
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<void *> addresses;
    for (const auto *list : {&made.inputs, &made.outputs})
        for (const CaseTensor &tensor : *list) {
            plain.push_back(describe(tensor));
            descriptions.push_back({plain.back(), dims_of(tensor.least), dims_of(tensor.most), dims_of(tensor.best)});
            buffers.push_back(list == &made.inputs
                                  ? load_input(tensor)
                                  : std::make_unique<Buffer>(count(tensor.shape) * item_bytes(tensor.type)));
            addresses.push_back(buffers.back()->data());
        }
    const auto num_inputs = static_cast<int32_t>(made.inputs.size());
    const auto num_outputs = static_cast<int32_t>(made.outputs.size());
    for (int32_t i = 0; i < num_inputs + num_outputs; i++)
        if (!builds->supportsFormatCombination(i, descriptions.data(), num_inputs, num_outputs))
            throw std::runtime_error(made.plugin + ": tensor " + std::to_string(i) + " not supported");
    if (builds->configurePlugin(descriptions.data(), num_inputs, descriptions.data() + num_inputs, num_outputs) != 0 ||
        runs->onShapeChange(plain.data(), num_inputs, plain.data() + num_inputs, num_outputs) != 0)
        throw std::runtime_error(made.plugin + ": not configured");
    Buffer workspace(
        builds->getWorkspaceSize(descriptions.data(), num_inputs, descriptions.data() + num_inputs, num_outputs));
    if (runs->enqueue(plain.data(), plain.data() + num_inputs, addresses.data(), addresses.data() + num_inputs,
                      workspace.data(), stream.get) != 0)
        throw std::runtime_error(made.plugin + ": enqueue refused");
    check_cuda(cudaStreamSynchronize(stream.get), "direct");
    std::vector<std::vector<char>> outputs;
    for (int32_t i = 0; i < num_outputs; i++) {
        outputs.push_back(buffers[static_cast<size_t>(num_inputs + i)]->read());
        write_file(made.outputs[static_cast<size_t>(i)].source, outputs.back().data(), outputs.back().size());
    }
    Addresses given;
    for (size_t i = 0; i < made.inputs.size(); i++)
        given[made.inputs[i].name] = addresses[i];
    compare_with_kernel(made, given, outputs, stream.get);
    std::printf("%s called directly\n", made.plugin.c_str());
}

static void parse(const std::string &model_path)
{
    std::unique_ptr<nvinfer1::IBuilder> builder(nvinfer1::createInferBuilder(logger));
    std::unique_ptr<nvinfer1::INetworkDefinition> network(builder->createNetworkV2(network_flags));
    std::unique_ptr<nvonnxparser::IParser> parser(nvonnxparser::createParser(*network, logger));
    if (!parser->parseFromFile(model_path.c_str(), static_cast<int>(nvinfer1::ILogger::Severity::kWARNING)))
        throw std::runtime_error(model_path + ": " + (parser->getNbErrors() ? parser->getError(0)->desc() : "not parsed"));
    for (int32_t i = 0; i < network->getNbLayers(); i++)
        std::printf("layer %s %d\n", network->getLayer(i)->getName(), static_cast<int>(network->getLayer(i)->getType()));
    for (int32_t i = 0; i < network->getNbOutputs(); i++) {
        const nvinfer1::ITensor *output = network->getOutput(i);
        const nvinfer1::Dims dims = output->getDimensions();
        std::printf("output %s %d [", output->getName(), static_cast<int>(output->getType()));
        for (int32_t axis = 0; axis < dims.nbDims; axis++)
            std::printf(axis ? ", %lld" : "%lld", static_cast<long long>(dims.d[axis]));
        std::printf("]\n");
    }
}
#endif

static void run_command(const std::vector<std::string> &words)
{
    const std::string command = words.at(0);
    load_library(words.at(1));
    const std::vector<std::string> rest(words.begin() + 3, words.end());
    if (command == "build")
        build(words.at(2), read_cases(rest));
    else if (command == "run")
        run(words.at(2), read_cases(rest));
    else if (command == "time")
        time_engine(words.at(2), read_case(rest.at(0)));
#if NV_TENSORRT_MAJOR >= 10
    else if (command == "direct")
        for (const Case &made : read_cases({words.begin() + 2, words.end()}))
            call_directly(made);
    else if (command == "parse")
        parse(words.at(2));
#endif
    else
        throw std::runtime_error("command " + command + ": not known to this TensorRT's driver");
}

int main(int count, char **words)
{
    if (count < 4) {
        std::fprintf(stderr, "usage: tensorrt_driver build|run|time LIBRARY ENGINE CASE... | direct LIBRARY CASE... | "
                             "parse LIBRARY MODEL\n");
        return 2;
    }
    try {
        run_command({words + 1, words + count});
    } catch (const std::exception &error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
    return 0;
}
