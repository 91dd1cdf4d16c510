# cmake -DMODULE=<libgdn_cuda.so> -DREADELF=<readelf> -DNM=<nm> -P check_module.cmake
#
# The module must load on a machine without NVIDIA software: it may need nothing of CUDA at load time, and shows one symbol.
execute_process(COMMAND ${READELF} -d ${MODULE} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\\(NEEDED\\)[^\n]*\\[[^\n]*\\]" needed "${dynamic}")
if(NOT needed)
    message(FATAL_ERROR "readelf shows no NEEDED entry of ${MODULE}; is its output understood?\n${dynamic}")
endif()
foreach(entry IN LISTS needed)
    if(NOT entry MATCHES "\\[(libc|libm|libdl|librt|libpthread|ld-linux[^]]*)\\.so\\.[0-9]+\\]")
        message(FATAL_ERROR "${MODULE} needs at load time: ${entry}")
    endif()
endforeach()
execute_process(COMMAND ${NM} -D --defined-only ${MODULE} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(STRIP "${symbols}" symbols)
if(NOT symbols MATCHES "^[0-9a-f]+ T gdn_backend_entry$")
    message(FATAL_ERROR "${MODULE} must export gdn_backend_entry alone; it exports\n${symbols}")
endif()
message(STATUS "${MODULE}: nothing of CUDA is needed to load it, one symbol is exported")
