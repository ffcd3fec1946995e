#include <executorch/extension/module/module.h>
#include <cstdio>
int main() { executorch::extension::Module m("x.pte"); std::printf("%d\n", static_cast<int>(m.load())); return 0; }
