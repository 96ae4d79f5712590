/* A case: a plugin, its attributes, its inputs and where their numbers come from, its outputs and where they go.
 *
 *     plugin SpecVocabHead
 *     attribute k 64
 *     input hidden half 3x128 hidden.bin          (raw numbers; or random:SEED:SCALE, or zeros)
 *     profile hidden 1x128 3x128 8x128            (smallest, best and largest shape; without: as it is)
 *     output candidate_ids int32 3x16 ids.bin
 *
 * Lines that begin with # are left out. Tensors of a network are called PLUGIN.NAME. */
#ifndef DRAFTSMITH_TESTS_CASE_FILE_H
#define DRAFTSMITH_TESTS_CASE_FILE_H

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using Shape = std::vector<int64_t>;

struct CaseTensor {
    std::string name, type, source;
    Shape shape, least, best, most;
};

struct Case {
    std::string plugin;
    std::vector<std::pair<std::string, int32_t>> attributes;
    std::vector<CaseTensor> inputs, outputs;
};

inline Shape read_shape(const std::string &text)
{
    Shape shape;
    std::stringstream parts(text);
    for (std::string part; std::getline(parts, part, 'x');)
        shape.push_back(std::stoll(part));
    return shape;
}

inline int64_t count(const Shape &shape)
{
    int64_t total = 1;
    for (int64_t size : shape)
        total *= size;
    return total;
}

inline size_t item_bytes(const std::string &type)
{
    static const std::map<std::string, size_t> sizes = {
        {"half", 2}, {"bf16", 2}, {"float", 4}, {"int32", 4}, {"int8", 1}, {"fp8", 1}};
    const auto found = sizes.find(type);
    if (found == sizes.end())
        throw std::runtime_error("type " + type + ": expected half, bf16, float, int32, int8 or fp8");
    return found->second;
}

inline CaseTensor &find_input(Case &made, const std::string &name)
{
    for (CaseTensor &tensor : made.inputs)
        if (tensor.name == name)
            return tensor;
    throw std::runtime_error("profile " + name + ": expected an input of this name before");
}

inline Case read_case(const std::string &path)
{
    std::ifstream file(path);
    if (!file)
        throw std::runtime_error(path + ": expected a case file");
    Case made;
    for (std::string line; std::getline(file, line);) {
        std::stringstream words(line);
        std::string kind, name, first, second, third;
        if (!(words >> kind) || kind[0] == '#')
            continue;
        words >> name >> first >> second >> third;
        if (kind == "plugin")
            made.plugin = name;
        else if (kind == "attribute")
            made.attributes.emplace_back(name, std::stoi(first));
        else if (kind == "input" || kind == "output") {
            const Shape shape = read_shape(second);
            (kind == "input" ? made.inputs : made.outputs).push_back({name, first, third, shape, shape, shape, shape});
        } else if (kind == "profile") {
            CaseTensor &tensor = find_input(made, name);
            tensor.least = read_shape(first), tensor.best = read_shape(second), tensor.most = read_shape(third);
        } else
            throw std::runtime_error(path + ": unknown line: " + line);
    }
    return made;
}

#endif
