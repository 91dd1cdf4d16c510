# How this project compiles: the flags of its own targets, and the functions its folders use.

# gdn_flags: language, warnings and sanitizers, for everything built here. Never exported.
add_library(gdn_flags INTERFACE)
target_compile_features(gdn_flags INTERFACE c_std_11)
target_compile_options(gdn_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wundef -Wvla -Wpointer-arith -Wwrite-strings -Wformat=2
      -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wcast-function-type>
    $<$<AND:$<BOOL:${GDN_WERROR}>,$<COMPILE_LANGUAGE:C>>:-Werror>)
if(GDN_SANITIZE)
    target_compile_options(gdn_flags INTERFACE
        $<$<COMPILE_LANGUAGE:C>:-fsanitize=${GDN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
    target_link_options(gdn_flags INTERFACE -fsanitize=${GDN_SANITIZE})
endif()
if(GDN_BUILD_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL Clang)
        message(FATAL_ERROR "GDN_BUILD_FUZZ=ON needs clang (libFuzzer), the C compiler is ${CMAKE_C_COMPILER_ID}")
    endif()
    target_compile_options(gdn_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# gdn_library_flags: in addition, for what ends up in the library. Products and sums are rounded as written, on every
# compiler: a fused multiply-add is used where the code says so.
add_library(gdn_library_flags INTERFACE)
target_link_libraries(gdn_library_flags INTERFACE gdn_flags)
target_compile_options(gdn_library_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-ffp-contract=off -fno-math-errno -fno-trapping-math>)
target_include_directories(gdn_library_flags INTERFACE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/core ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})

set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)

# gdn_add_objects(<target> <sources>...): object code for both libraries, position-independent, nothing exported but
# what GDN_API says.
function(gdn_add_objects target)
    add_library(${target} OBJECT ${ARGN})
    target_link_libraries(${target} PRIVATE gdn_library_flags)
    set_target_properties(${target} PROPERTIES
        C_STANDARD 11
        C_VISIBILITY_PRESET hidden
        POSITION_INDEPENDENT_CODE ON)
endfunction()

# gdn_add_static_backend(<symbol> <object target> [STATIC_ONLY]): links a backend into the libraries, or into the static
# one alone; call it best first. <symbol> is its constant gdn_backend; core learns of it through the generated list.
function(gdn_add_static_backend symbol target)
    cmake_parse_arguments(PARSE_ARGV 2 arg "STATIC_ONLY" "" "")
    set(kinds static)
    if(NOT arg_STATIC_ONLY)
        list(APPEND kinds shared)
    endif()
    foreach(kind IN LISTS kinds)
        set_property(GLOBAL APPEND PROPERTY GDN_BACKENDS_${kind} ${symbol})
        set_property(GLOBAL APPEND PROPERTY GDN_BACKEND_TARGETS_${kind} ${target})
    endforeach()
endfunction()

# gdn_backend_objects(<shared|static> <variable>): writes the generated list of backends and gives the objects of the
# list and of what it names.
function(gdn_backend_objects kind variable)
    get_property(symbols GLOBAL PROPERTY GDN_BACKENDS_${kind})
    get_property(targets GLOBAL PROPERTY GDN_BACKEND_TARGETS_${kind})
    set(GDN_BACKEND_DECLARATIONS "")
    set(GDN_BACKEND_ENTRIES "")
    foreach(symbol IN LISTS symbols)
        string(APPEND GDN_BACKEND_DECLARATIONS "extern const gdn_backend ${symbol};\n")
        string(APPEND GDN_BACKEND_ENTRIES "    &${symbol},\n")
    endforeach()
    set(GDN_MODULE_ENTRIES "")
    foreach(name IN LISTS GDN_MODULE_NAMES)
        string(APPEND GDN_MODULE_ENTRIES "    \"${name}\",\n")
    endforeach()
    set(source ${PROJECT_BINARY_DIR}/core/${kind}_backends.c)
    configure_file(${PROJECT_SOURCE_DIR}/core/static_backends.c.in ${source} @ONLY)
    gdn_add_objects(gdn_${kind}_backends ${source})
    set(objects $<TARGET_OBJECTS:gdn_${kind}_backends>)
    foreach(target IN LISTS targets)
        list(APPEND objects $<TARGET_OBJECTS:${target}>)
    endforeach()
    set(${variable} ${objects} PARENT_SCOPE)
endfunction()
