// NVRTC's functions that torchlike calls: texts are compiled for this processor, by COMPILER, after PRELUDE.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>

namespace {
enum Result { SUCCESS = 0, COMPILATION = 6 };

struct Program {
    std::string text, log, image;
};

std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
}

bool ran(const std::string& command, const std::string& log) { return system((COMPILER " " + command + " 2>" + log).c_str()) == 0; }

// Kernels have their final names once the text is preprocessed. Each gets a name that no function has, and a function that takes the
// addresses of its arguments.
std::string with_calls(const std::string& text) {
    static const std::regex kernel("extern \"C\"\\s+void\\s+(\\w+)\\s*\\(");
    std::string all = std::regex_replace(text, kernel, "extern \"C\" void kernel_$1(");
    std::set<std::string> seen;
    for (std::sregex_iterator k(text.begin(), text.end(), kernel), end; k != end; ++k) {
        const std::string name = (*k)[1];
        if (seen.insert(name).second) all += "\nextern \"C\" void call_" + name + "(void** args) { call(&kernel_" + name + ", args); }";
    }
    return all + "\n";
}

Result compile(Program& p) {
    char folder[] = "/tmp/emulated-gpu-XXXXXX";
    if (!mkdtemp(folder)) return COMPILATION;
    const std::string at = folder, log = at + "/log", flags = " -w -std=c++17 -O1 -fno-strict-aliasing -fno-threadsafe-statics -fPIC ";
    // The emulator has room for shared memory whose size comes with a launch.
    static const std::regex room("extern\\s+__shared__([^;]*)\\[\\s*\\];");
    std::ofstream(at + "/kernel.cpp") << "#include \"" PRELUDE "\"\n" << std::regex_replace(p.text, room, "static$1[256 << 10];");
    bool good = ran(flags + "-E -P " + at + "/kernel.cpp -o " + at + "/whole.ii", log);
    if (good) {
        const std::string whole = content(at + "/whole.ii");
        std::ofstream(at + "/whole.ii") << with_calls(whole);
        good = ran(flags + "-shared -nostdlib " + at + "/whole.ii -lm -lgcc -o " + at + "/kernel.so", log);
    }
    p.log = content(log);
    if (good) {
        p.image = content(at + "/kernel.so");
        const uint64_t bytes = p.image.size();
        p.image.insert(0, (const char*)&bytes, sizeof bytes);
    }
    for (const char* name : {"/kernel.cpp", "/whole.ii", "/kernel.so", "/log"}) unlink((at + name).c_str());
    rmdir(folder);
    return good ? SUCCESS : COMPILATION;
}
}   // namespace

extern "C" {
Result nvrtcCreateProgram(Program** p, const char* text, const char*, int, const char* const*, const char* const*) {
    return *p = new Program{text, "", ""}, SUCCESS;
}
Result nvrtcDestroyProgram(Program** p) { return delete *p, SUCCESS; }
Result nvrtcCompileProgram(Program* p, int, const char* const*) { return compile(*p); }
Result nvrtcGetProgramLogSize(Program* p, size_t* n) { return *n = p->log.size() + 1, SUCCESS; }
Result nvrtcGetProgramLog(Program* p, char* to) { return memcpy(to, p->log.c_str(), p->log.size() + 1), SUCCESS; }
Result nvrtcGetCUBINSize(Program* p, size_t* n) { return *n = p->image.size(), SUCCESS; }
Result nvrtcGetCUBIN(Program* p, char* to) { return memcpy(to, p->image.data(), p->image.size()), SUCCESS; }
}
