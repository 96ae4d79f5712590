/* What differs between TensorRT 8 and 10 or 11 when a network with our plugins is made. */
#ifndef DRAFTSMITH_TESTS_NETWORKS_H
#define DRAFTSMITH_TESTS_NETWORKS_H

#include <NvInfer.h>
#include <cstdio>
#include <dlfcn.h>
#include <memory>

#include "case_file.h"

class Logger : public nvinfer1::ILogger {
  public:
    void log(Severity severity, const char *text) noexcept override
    {
        if (severity <= Severity::kWARNING)
            std::fprintf(stderr, "TensorRT: %s\n", text);
    }
};

inline nvinfer1::DataType tensorrt_type(const std::string &type)
{
    static const std::map<std::string, nvinfer1::DataType> types = {
        {"half", nvinfer1::DataType::kHALF},   {"float", nvinfer1::DataType::kFLOAT},
        {"int32", nvinfer1::DataType::kINT32}, {"int8", nvinfer1::DataType::kINT8},
#if NV_TENSORRT_MAJOR >= 10
        {"bf16", nvinfer1::DataType::kBF16},   {"fp8", nvinfer1::DataType::kFP8},
#endif
    };
    const auto found = types.find(type);
    if (found == types.end())
        throw std::runtime_error("type " + type + ": this TensorRT has none of this name");
    return found->second;
}

inline nvinfer1::Dims dims_of(const Shape &shape)
{
    nvinfer1::Dims dims{};
    dims.nbDims = static_cast<int32_t>(shape.size());
    for (size_t i = 0; i < shape.size(); i++)
        dims.d[i] = static_cast<decltype(+dims.d[0])>(shape[i]);
    return dims;
}

/* Dimensions that a profile lets vary are -1. */
inline nvinfer1::Dims declared_dims(const CaseTensor &tensor)
{
    nvinfer1::Dims dims = dims_of(tensor.shape);
    for (size_t i = 0; i < tensor.shape.size(); i++)
        if (tensor.least[i] != tensor.most[i])
            dims.d[i] = -1;
    return dims;
}

/* Loads our library; "-" loads none. */
inline void load_library(const std::string &path)
{
    if (path != "-" && dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
        throw std::runtime_error(std::string("plugin library: ") + dlerror());
}

/* The attributes of a case as TensorRT takes them; they live as long as this. */
class FieldList {
  public:
    explicit FieldList(const Case &made) : case_(made)
    {
        for (auto &[name, value] : case_.attributes)
            fields_.push_back({name.c_str(), &value, nvinfer1::PluginFieldType::kINT32, 1});
        collection_.nbFields = static_cast<int32_t>(fields_.size());
        collection_.fields = fields_.data();
    }
    FieldList(const FieldList &) = delete;
    FieldList &operator=(const FieldList &) = delete;
    nvinfer1::PluginFieldCollection *get() { return &collection_; }

  private:
    Case case_;
    std::vector<nvinfer1::PluginField> fields_;
    nvinfer1::PluginFieldCollection collection_{};
};

#if NV_TENSORRT_MAJOR >= 10
constexpr uint32_t network_flags = NV_TENSORRT_MAJOR >= 11 ? 0 : 2; /* 2: strongly typed, as 11 always is */

inline nvinfer1::IPluginCreatorV3One *find_creator(const std::string &plugin)
{
    nvinfer1::IPluginCreatorInterface *found = getPluginRegistry()->getCreator(plugin.c_str(), "1", "draftsmith");
    if (found == nullptr)
        throw std::runtime_error(plugin + ": expected a registered creator, found none");
    return static_cast<nvinfer1::IPluginCreatorV3One *>(found);
}

inline nvinfer1::IPluginV3 *create_plugin(const Case &made)
{
    FieldList fields(made);
    nvinfer1::IPluginV3 *plugin = find_creator(made.plugin)
                                      ->createPlugin(made.plugin.c_str(), fields.get(), nvinfer1::TensorRTPhase::kBUILD);
    if (plugin == nullptr)
        throw std::runtime_error(made.plugin + ": not created");
    return plugin;
}

inline nvinfer1::ILayer *add_plugin(nvinfer1::INetworkDefinition &network, const Case &made,
                                    std::vector<nvinfer1::ITensor *> &inputs)
{
    return network.addPluginV3(inputs.data(), static_cast<int32_t>(inputs.size()), nullptr, 0, *create_plugin(made));
}
#else
constexpr uint32_t network_flags = 1; /* explicit batch */

inline nvinfer1::IPluginCreator *find_creator(const std::string &plugin)
{
    nvinfer1::IPluginCreator *found = getPluginRegistry()->getPluginCreator(plugin.c_str(), "1", "draftsmith");
    if (found == nullptr)
        throw std::runtime_error(plugin + ": expected a registered creator, found none");
    return found;
}

inline nvinfer1::ILayer *add_plugin(nvinfer1::INetworkDefinition &network, const Case &made,
                                    std::vector<nvinfer1::ITensor *> &inputs)
{
    FieldList fields(made);
    auto *plugin = find_creator(made.plugin)->createPlugin(made.plugin.c_str(), fields.get());
    if (plugin == nullptr)
        throw std::runtime_error(made.plugin + ": not created");
    return network.addPluginV2(inputs.data(), static_cast<int32_t>(inputs.size()), *plugin);
}
#endif

/* Inputs PLUGIN.NAME, the plugin, outputs PLUGIN.NAME; profiles for what varies. */
inline void add_case(nvinfer1::INetworkDefinition &network, nvinfer1::IOptimizationProfile &profile, const Case &made)
{
    std::vector<nvinfer1::ITensor *> inputs;
    for (const CaseTensor &tensor : made.inputs) {
        const std::string name = made.plugin + "." + tensor.name;
        nvinfer1::ITensor *input = network.addInput(name.c_str(), tensorrt_type(tensor.type), declared_dims(tensor));
        if (input == nullptr)
            throw std::runtime_error(name + ": not added");
        profile.setDimensions(name.c_str(), nvinfer1::OptProfileSelector::kMIN, dims_of(tensor.least));
        profile.setDimensions(name.c_str(), nvinfer1::OptProfileSelector::kOPT, dims_of(tensor.best));
        profile.setDimensions(name.c_str(), nvinfer1::OptProfileSelector::kMAX, dims_of(tensor.most));
#if NV_TENSORRT_MAJOR < 10
        if (tensor.type == "int8")
            input->setDynamicRange(-127.0f, 127.0f);
#endif
        inputs.push_back(input);
    }
    nvinfer1::ILayer *layer = add_plugin(network, made, inputs);
    if (layer == nullptr)
        throw std::runtime_error(made.plugin + ": layer not added");
    layer->setName(made.plugin.c_str());
    for (int32_t i = 0; i < layer->getNbOutputs(); i++) {
        nvinfer1::ITensor *output = layer->getOutput(i);
        output->setName((made.plugin + "." + made.outputs.at(static_cast<size_t>(i)).name).c_str());
        network.markOutput(*output);
    }
}

#endif
