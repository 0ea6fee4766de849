# Included after project() where the phones' libneuralnetworks.so is built (CMAKE_PROJECT_INCLUDE).
# It is a library of the phone, not an executable of ours that has to suit every phone: it may use
# all of its libc, beyond the symbols that device_agent/android/symbols.txt allows.
set(CMAKE_C_LINKER_WRAPPER_FLAG "")
string(APPEND CMAKE_SHARED_LINKER_FLAGS " --unresolved-symbols=ignore-all")
